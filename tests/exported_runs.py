"""Runs to export, with random weights, that nobody has trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from random_networks import random_parameters

from znnpy.config import config_from
from znnpy.interop.export.trained import Trained
from znnpy.interop.model import ImportedModel
from znnpy.interop.run import write_run
from znnpy.network import trained_network
from znnpy.train.progress import Quiet
from znnpy.train.start import read_run


def run_of(path: Path, network: dict[str, Any], seed: int = 0, **sections: Any) -> Trained:
    """A run directory of a network and other sections of its config."""
    values = {"network": network, "training": {"output_shape": [4, 6, 6]}, **sections}
    found = trained_network(config_from({**values, "run": {"directory": str(path)}}, path.parent))
    write_run(ImportedModel("A net", values, {"own": lambda: random_parameters(found, seed)}), path)
    return Trained(read_run(path, Quiet()))
