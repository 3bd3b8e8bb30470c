"""Runs to export, with random weights, that nobody has trained, and modules that were exported."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from random_networks import random_parameters

from znnpy.config import config_from
from znnpy.interop.export.computation import Computation
from znnpy.interop.export.torch_module import module_text
from znnpy.interop.export.trained import Trained
from znnpy.interop.model import ImportedModel
from znnpy.interop.run import write_run
from znnpy.network import trained_network
from znnpy.train.progress import Quiet
from znnpy.train.start import read_run
from znnpy.weights.torch_writing import write_torch

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
    **{
        f"norm of kind {norm if isinstance(norm, str) else 'length'}": [
            {"conv": {"channels": 3, "size": 2, "function": "elu", "norm": norm, "bias": True}},
            _CONV,
        ]
        for norm in ("channel", "response", {"kind": "length", "epsilon": 0.5})
    },
    "depth to space": [
        {"conv": {"channels": 12, "size": 2, "stride": [1, 2, 3], "function": "elu"}},
        {"depth_to_space": [1, 2, 3]},
        {"conv": {"channels": 3, "size": [2, 1, 1]}},
    ],
    "tied slopes": [
        {"conv": {"channels": 3, "size": 2, "function": "prelu", "tied": tied}}
        for tied in (True, False)
    ],
    "norm of voxels that learns nothing": [
        {"conv": {"channels": 4, "size": 2, "norm": {"kind": kind, "affine": False}}}
        for kind in ("channel", "length")
    ],
    "corners": [_CONV, *_corners([1, 2, 3])],
    **{
        f"resize, {mode}": [
            _CONV,
            {
                "resize": {
                    "factor": [3, 1, 6],
                    "divisor": [2, 1, 4],
                    "more": [0, 2, 0],
                    "mode": mode,
                }
            },
            {"conv": {"channels": 2, "size": [3, 2, 3], "stride": [3, 1, 3]}},
        ]
        for mode in ("nearest", "nearest_exact", "linear", "corners")
    },
    "resize that does nothing": [_CONV, {"resize": {"factor": 2, "divisor": 2}}],
    "corners of one voxel": _corners(6),
}
"""Chains of kinds that exported files of other programs bring."""


def run_of(path: Path, network: dict[str, Any], seed: int = 0, **sections: Any) -> Trained:
    """A run directory of a network and other sections of its config."""
    values = {"network": network, "training": {"output_shape": [4, 6, 6]}, **sections}
    found = trained_network(config_from({**values, "run": {"directory": str(path)}}, path.parent))
    write_run(ImportedModel("A net", values, {"own": lambda: random_parameters(found, seed)}), path)
    return Trained(read_run(path, Quiet()))


def loaded(computation: Computation, folder: Path) -> Any:
    """The module, written and loaded as a user does it."""
    path = folder / "net.py"
    path.write_text(module_text(computation, "A net", "From a test"))
    with path.with_suffix(".pth").open("wb") as file:
        write_torch(file, computation.tensors)
    return imported(path).load()


def imported(path: Path) -> Any:
    """The module of a file."""
    spec = importlib.util.spec_from_file_location("net", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
