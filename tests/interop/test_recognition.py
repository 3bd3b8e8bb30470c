"""nnU-Net's nets among others, and their weights by the names that they came with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnunet_model import folder_of, weights
from nnunet_plans import Recipe

from znnpy.interop.nnunet.recognition import recognised, state_dict
from znnpy.interop.source import read_model
from znnpy.network import load_network

FLAT: Any = {"patch": (24, 32), "spacing": (1.0, 2.0), "mirrored": (1,)}
RECIPES = {
    "plain": Recipe(),
    "old plans": Recipe(widths=(4, 6, 8, 9), old=True),
    "residual": Recipe(residual=True, widths=(4, 6, 8, 10)),
    "flat": Recipe(**FLAT),
    "flat, residual": Recipe(residual=True, **FLAT),
}


@pytest.mark.parametrize("name", RECIPES)
def test_names_and_axes_are_those_of_the_checkpoint(name: str, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    model = read_model(folder_of(recipe, tmp_path / "model"))
    network = load_network({"unet": model.config["network"]["unet"]})
    found = recognised(network)
    assert found is not None
    assert found.kind == ("ResidualEncoderUNet" if recipe.residual else "PlainConvUNet")
    assert found.dimensions == len(recipe.patch)
    state, theirs = state_dict(found, network, model.members["fold_0"]()), weights(recipe)
    for key, array in theirs.items():
        assert np.array_equal(state[key], array)
    # Whatever else there is has a first name among them.
    distinct = {id(array) for array in state.values()}
    assert distinct == {id(state[key]) for key in theirs}
    assert state["decoder." + next(k for k in theirs if k.startswith("encoder."))] is not None


@pytest.mark.parametrize(
    "change",
    [
        {"pool": "max"},
        {"block": "residual"},
        {"norm": {"kind": "group", "groups": 2}},
        {"function": "prelu"},
        {"supervise": 0},
        {"convs": [2, 3, 2]},
        {"dropout": 0.9},
        {"order": "pre"},
        {"norm": "channel"},
        {"norm": "response"},
        {"heads": {"more": 2}},
    ],
    ids=str,
)
def test_other_unets_are_none(change: dict[str, Any]) -> None:
    keys: dict[str, Any] = {
        "widths": [4, 6, 8],
        "pool": "strided",
        "norm": "instance",
        "supervise": 1,
    }
    assert recognised(load_network({"unet": keys})) is not None
    assert (recognised(load_network({"unet": keys | change})) is None) == ("convs" not in change)


def test_what_is_no_unet_at_all() -> None:
    layers = [{"conv": {"channels": 1, "size": 3}}]
    assert recognised(load_network({"layers": layers})) is None
    nodes = {name: {"kind": "transfer", "channels": 1} for name in ("down0.layer1", "output")}
    edges = {
        "down0.conv1": {"kind": "conv", "from": "input", "to": "down0.layer1", "size": 3},
        "a": {"kind": "conv", "from": "down0.layer1", "to": "output", "size": 1},
    }
    start = {"input": {"kind": "input", "channels": 1}}
    assert recognised(load_network({"nodes": start | nodes, "edges": edges})) is None
