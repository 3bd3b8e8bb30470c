"""A rank that profiles the updates of a config with others: `python profiled_rank.py CONFIG OUT`."""

import sys
from pathlib import Path

from znnpy.config import load_config
from znnpy.distributed.world import World
from znnpy.network import trained_network
from znnpy.profile import Subject, Wishes, profile_subject

if __name__ == "__main__":
    config = load_config(Path(sys.argv[1]))
    with World.open() as world:
        subject = Subject(config, trained_network(config), world=world)
        profile_subject(subject, Path(sys.argv[2]), Wishes(updates=6))
