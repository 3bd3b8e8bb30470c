"""The config of a command over several ranks: each reads what it was started with, and all must mean the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from znnpy.config import config_from, differing, load_config
from znnpy.config.export import plain
from znnpy.errors import ConfigError

if TYPE_CHECKING:
    from znnpy.config.models import Config
    from znnpy.distributed.world import World

MOST = 5  # keys that are named


def config_of_ranks(path: Path, changed: Sequence[str], world: World) -> Config:
    """Return a config with overrides, which all ranks call for together.

    The file may be on rank 0's disk alone: where it is missing, the config is rank 0's. Raises as `load_config`, and
    on all ranks the same ConfigError where one was started with other values, which it names.
    """
    if world.size == 1:
        return load_config(path, changed)
    own = None if world.rank and not path.exists() else load_config(path, changed)
    words, folder = [str(path), *changed], str(Path.cwd())
    # Digests first: hundreds of ranks need not tell each other the same.
    digests = world.exchange(_digest(own))
    if len(set(digests)) == 1 and own is not None:
        return own
    told = world.exchange([words, None if own is None else plain(own), folder])
    first = config_from(told[0][1])
    for rank, (others, values, place) in enumerate(told):
        # Without the file only the words of the line are left to compare.
        same = others == told[0][0] if values is None else digests[rank] == digests[0]
        if not same:
            other = None if values is None else config_from(values)
            places = (told[0][2], place)
            raise ConfigError(_refusal(rank, first, other, told[0][0], others) + _way_out(places))
    return first if own is None else own


def _digest(config: Config | None) -> str:
    text = "" if config is None else json.dumps(plain(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _refusal(
    rank: int, first: Config, other: Config | None, words: list[str], others: list[str]
) -> str:
    if other is None:
        what = f"{' '.join(others)}, not {' '.join(words)}"
    else:
        keys = differing(first, other, ("rank 0 has", f"rank {rank} has"))
        what = ", ".join(keys[:MOST])
        what += f" and {len(keys) - MOST} more" if len(keys) > MOST else ""
    return f"rank {rank} was started with another config than rank 0: {what}"


def _way_out(places: tuple[str, str]) -> str:
    """Say what to do, by the folders in which both run."""
    rest = "start all ranks with the same file and the same values"
    # Paths of a config count from its folder.
    return (
        f"; they run in {places[0]} and {places[1]}: {rest}" if len({*places}) > 1 else f"; {rest}"
    )
