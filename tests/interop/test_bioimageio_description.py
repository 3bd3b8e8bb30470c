"""What packages of bioimage.io say: sizes that follow from the input's, as the format computes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from znnpy.config import config_from
from znnpy.config.models import Config
from znnpy.geometry import fit_input
from znnpy.interop.export.bioimageio_description import (
    Part,
    description,
    taken,
)
from znnpy.interop.export.trained import Trained
from znnpy.network import initial_parameters, trained_network
from znnpy.train.checkpoint import Checkpoint
from znnpy.train.start import SavedRun

LAYERS = [
    {"conv": {"channels": 2, "size": [1, 2, 3]}},
    {"max_pool": [1, 2, 2]},
    {"conv": {"channels": 1, "size": 2}},
]
UNET = {"unet": {"widths": [2, 3], "norm": "instance"}}


def config(data: dict[str, Any], network: Any = None) -> Config:
    values = {
        "network": network or {"layers": LAYERS},
        "data": data,
        "training": {"output_shape": [4, 8, 8]},
    }
    return config_from(values, Path("/nowhere"))


def trained(given: Config) -> Trained:
    network = trained_network(given)
    checkpoint = Checkpoint(5, dict(initial_parameters(network, 0)), {}, 0.1, 0, 0)
    return Trained(SavedRun(Path("run"), given, network, None, checkpoint))


def said(network: Any = None) -> tuple[Trained, dict[str, Any]]:
    found = trained(config({}, network))
    keys = ("README", "onnx", "module", "weights", "input", "output")
    parts = {key: Part(key, "0" * 64) for key in keys}
    return found, description(found, (["input"], ["output"]), taken(found), parts, 20)


STRIDED = {"layers": [{"conv": {"channels": 2, "size": [1, 3, 3]}}, {"max_pool": [1, 2, 2]}]}


@pytest.mark.parametrize("network", [STRIDED, UNET], ids=["strided", "unet"])
def test_sizes_follow_as_the_format_computes_them(network: Any) -> None:
    found, rdf = said(network)
    net = found.saved.weights.network
    (given,), (made,) = rdf["inputs"], rdf["outputs"]
    for n in range(4):
        shape = [axis["size"]["min"] + n * axis["size"]["step"] for axis in given["axes"][2:]]
        output = [
            size / axis["scale"] + axis["size"]["offset"]
            for size, axis in zip(shape, made["axes"][2:], strict=True)
        ]
        wanted = fit_input(net, tuple(shape)).output_shapes["output"]  # type: ignore[arg-type]
        assert tuple(output) == wanted
    # Without padding one voxel is enough; else by the patch that it was trained on.
    least = [4, 8, 8] if network is UNET else [1, 4, 4]
    assert [axis["size"]["min"] for axis in given["axes"][2:]] == least
    assert [axis["size"]["step"] for axis in given["axes"][2:]] == [1, 2, 2] or network is UNET
    assert rdf["name"] == "Network of the run  run  after 5 updates"


def test_sizes_that_leave_a_rest_are_the_runs() -> None:
    """Inputs of 2 n + 1 voxels: the format divides without a rest."""
    _, rdf = said()
    (given,), (made,) = rdf["inputs"], rdf["outputs"]
    assert [axis["size"] for axis in given["axes"][2:]] == [5, 19, 20]
    assert [axis["size"] for axis in made["axes"][2:]] == [4, 8, 8]
    assert [axis["scale"] for axis in made["axes"][2:]] == [1, 2, 2]


def test_a_title_that_is_no_name() -> None:
    found, _ = said()
    odd = replace(found, saved=replace(found.saved, path=Path("/nowhere/a:b*" + "c" * 200)))
    parts = {key: Part(key, "") for key in ("README", "onnx", "module", "weights", "i", "o")}
    name = description(odd, (["i"], ["o"]), taken(odd), parts, 20)["name"]
    assert len(name) == 128
    assert set(":*'").isdisjoint(name)
