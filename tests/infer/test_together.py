"""Patches that others compute give the bits of a prediction alone, each once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from znnpy.config import config_from
from znnpy.data.scene import Scene
from znnpy.data.volume import ArrayVolume
from znnpy.infer.config_model import Weights, patch_model, prediction_of
from znnpy.infer.together import groups
from znnpy.network import build_network, initial_parameters
from znnpy.network.types import Triple

EXACT = [
    {"conv": {"channels": 3, "size": [1, 3, 2], "function": "relu"}},
    {"max_filter": [1, 2, 2]},
    {"conv": {"channels": 2, "size": [3, 2, 3]}},
]
WINDOWS = [
    {"conv": {"channels": 3, "size": 3, "padding": "same", "function": "relu"}},
    {"conv": {"channels": 2, "size": 1}},
]
EXTENT = (9, 17, 19)


class Others:
    """Another model, which computes so many patches a call."""

    def __init__(self, weights: Weights, size: int) -> None:
        self._weights, self.size, self.calls = weights, size, 0
        self.opened = 0

    @contextmanager
    def helping(self, model: Any, patch: Triple, plan: Mapping[str, Any]) -> Iterator[Others]:
        config, network = self._weights.config, self._weights.network
        with patch_model(config, network, patch, plan) as self._model:
            self._model.set_parameters(model.parameters)
            self.opened += 1
            yield self

    def __call__(self, images: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.calls += 1
        assert all(len(it) == self.size for it in images.values())
        found = []
        for number in range(self.size):
            for name, room in self._model.staged().items():
                room[...] = images[name][number]
            found.append({name: np.array(it[0]) for name, it in self._model.run().items()})
        return {name: np.stack([it[name] for it in found]) for name in found[0]}


def setup(layers: list[Any], border: str, mask: bool) -> tuple[Weights, Scene]:
    config = config_from(
        {
            "network": {"layers": layers},
            "data": {"border": border},
            "training": {"output_shape": 4, "conv": "direct"},
            "run": {"threads": 1},
        }
    )
    network, rng = build_network(config.network), np.random.default_rng(0)
    volume = ArrayVolume(rng.integers(0, 255, EXTENT).astype(np.uint8), "raw")
    wanted = np.zeros(EXTENT, np.uint8)
    wanted[:, 3:9, 4:] = 1
    masks = {"output": ArrayVolume(wanted, "mask")} if mask else {}
    weights = Weights(config, network, None, initial_parameters(network, 1))
    return weights, Scene({"input": volume}, {}, masks)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize(
    ("layers", "border"), [(EXACT, "valid"), (EXACT, "mirror"), (WINDOWS, "mirror")]
)
def test_the_bits_are_those_of_one(layers: list[Any], border: str, size: int, mask: bool) -> None:
    weights, scene = setup(layers, border, mask)
    patch = None if layers is WINDOWS else (3, 5, 6)
    with prediction_of(weights, scene, patch) as prediction:
        wanted = prediction.whole()["output"]
        pieces = len(prediction.grid.pieces(prediction_region(prediction)))
    others = Others(weights, size)
    with prediction_of(replace(weights, helpers=others.helping), scene, patch) as prediction:
        prediction._computed = None  # type: ignore[assignment, method-assign]  # nothing is left to do here
        found = prediction.whole()["output"]
        assert not prediction._ahead
    assert np.array_equal(found, wanted)
    assert others.opened == 1
    assert pieces > 2
    assert others.calls > 1


def prediction_region(prediction: Any) -> Any:
    from znnpy.infer.blocks import Region

    return Region((0, 0, 0), prediction.field.shape)


def test_groups() -> None:
    assert list(groups(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(groups([], 3)) == []
