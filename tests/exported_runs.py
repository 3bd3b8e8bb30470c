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

_CONV = {"conv": {"channels": 3, "size": 2, "function": "elu"}}
_PAIRS = [[0, 1], [2, 0], [1, 2]]


def _corners(factor: Any) -> list[dict[str, Any]]:
    """Growth, and a convolution that shrinks as much: outputs lie no closer than inputs."""
    strided = {"conv": {"channels": 2, "size": factor, "stride": factor}}
    return [{"upsample": {"factor": factor, "mode": "corners"}}, strided]


LAYERS: dict[str, list[dict[str, Any]]] = {
    "means": [_CONV, {"mean": {}}, _CONV],
    "means alone": [{"mean": {}}],
    "no padding": [{"pad": 0}, _CONV],
    **{
        f"padding, {border}": [_CONV, {"pad": {"padding": _PAIRS, "border": border}}, _CONV]
        for border in ("zeros", "replicate", "reflect")
    },
    "corners": [_CONV, *_corners([1, 2, 3])],
    "corners of one voxel": _corners(6),
}
"""Chains of kinds that exported files of other programs bring."""


def run_of(path: Path, network: dict[str, Any], seed: int = 0, **sections: Any) -> Trained:
    """A run directory of a network and other sections of its config."""
    values = {"network": network, "training": {"output_shape": [4, 6, 6]}, **sections}
    found = trained_network(config_from({**values, "run": {"directory": str(path)}}, path.parent))
    write_run(ImportedModel("A net", values, {"own": lambda: random_parameters(found, seed)}), path)
    return Trained(read_run(path, Quiet()))
