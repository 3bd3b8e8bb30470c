"""Networks see each slice by its own numbers in training and prediction: the same as of a volume normalised before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy.config import config_from
from znnpy.data.config_volumes import normalisations
from znnpy.data.sampling.augmentation import Augmentation
from znnpy.data.sampling.sample import InputPatch, OutputPatch
from znnpy.data.sampling.sampler import Sampler
from znnpy.data.sampling.targets import BoundaryTarget
from znnpy.data.scene import Scene
from znnpy.data.values.normalization import normalisation
from znnpy.data.values.own_statistics import Own
from znnpy.data.volume import ArrayVolume
from znnpy.infer.blocks import whole_field
from znnpy.infer.config_model import Weights, patch_model
from znnpy.infer.predict import Finish, VolumePrediction
from znnpy.infer.provenance import norms_record
from znnpy.network import build_network, initial_parameters

EXTENT = (9, 12, 12)


def images() -> tuple[np.ndarray, np.ndarray]:
    """Slices of other brightness each, and what they are after each was normalised."""
    random = np.random.default_rng(0)
    raw = (random.integers(0, 50, EXTENT) + 20 * np.arange(9)[:, None, None]).astype(np.uint8)
    exact = raw.astype(np.float64)
    low, high = exact.min((1, 2), keepdims=True), exact.max((1, 2), keepdims=True)
    return raw, ((exact - low) / (high - low)).astype(np.float32)


def predicted(raw: np.ndarray, normalize: Any, border: str, flips: bool) -> np.ndarray:
    config = config_from(
        {
            "network": {"layers": [{"conv": {"channels": 2, "size": [3, 2, 3]}}]},
            "data": {"border": border, "normalize": normalize},
            "training": {"output_shape": 4, "conv": "direct"},
            "run": {"threads": 2},
        }
    )
    network = build_network(config.network)
    weights = Weights(config, network, None, initial_parameters(network, 1))
    scene = Scene({"input": ArrayVolume(raw, "raw")}, {})
    field = whole_field(network, scene.images, {"input": (0, 0, 0)}, border == "mirror")
    norms = normalisations(scene, config.data)
    with patch_model(config, network, (3, 5, 6), None) as model:
        model.set_parameters(weights.parameters)
        found = VolumePrediction(model, scene, field, norms, Finish(flips=flips))
        return found.whole()["output"]


@pytest.mark.parametrize("border", ["valid", "mirror"])
@pytest.mark.parametrize("flips", [False, True])
def test_prediction(border: str, flips: bool) -> None:
    raw, ready = images()
    found = predicted(raw, {"kind": "range", "per": "slice"}, border, flips)
    np.testing.assert_allclose(found, predicted(ready, "none", border, flips), atol=1e-5)


@pytest.mark.parametrize("depth", [1, 4])
def test_training_patches(depth: int) -> None:
    raw, ready = images()
    labels = ArrayVolume(np.random.default_rng(1).integers(0, 3, EXTENT), "labels")
    shape = (depth, 4, 4)

    def sampler(array: np.ndarray, mode: Any, order: str) -> Sampler:
        return Sampler(
            [Scene({"in": ArrayVolume(array, "raw")}, {"out": labels})],
            {"in": InputPatch(shape)},
            {"out": OutputPatch(shape, BoundaryTarget())},
            augmentation=Augmentation() if order == "random" else None,
            order=order,
            normalise=mode,
            mirror=True,
            seed=3,
        )

    for order in ("random", "shuffled"):
        own = sampler(raw, Own("range", by_slice=True), order)
        before = sampler(ready, "none", order)
        numbers = [0, 5, 17]
        for found, wanted in (
            (own.samples(numbers), before.samples(numbers)),
            (own.sample(8), before.sample(8)),
        ):
            assert found.images["in"].flags.c_contiguous
            np.testing.assert_allclose(found.images["in"], wanted.images["in"], atol=1e-6)


def test_the_journal_tells_normalisations_apart() -> None:
    raw, _ = images()
    other = raw.copy()
    other[3] //= 2

    def record(array: np.ndarray, **normalize: Any) -> str:
        scene = Scene({"input": ArrayVolume(array, "raw")}, {})
        data = config_from(
            {
                "network": {"layers": [{"conv": {"channels": 1, "size": 3}}]},
                "data": {"normalize": {"kind": "percentiles", **normalize}},
                "training": {"output_shape": 1},
            }
        ).data
        return str(norms_record(normalisations(scene, data)))

    texts = [
        record(raw),
        record(raw, clip=True),
        record(raw, nonzero=True),
        record(raw, per="slice"),
        record(other, per="slice"),
    ]
    assert len(set(texts)) == 5
    assert max(map(len, texts)) < 200
    assert record(raw, per="slice") == texts[3]


@pytest.mark.parametrize("by_slice", [False, True])
@pytest.mark.parametrize("clip", [False, True])
def test_ranks_tell_each_other_all_of_it(by_slice: bool, clip: bool) -> None:
    """The numbers of a volume come by way of the rank that has read it."""
    raw, _ = images()
    raw[:, :3] = 0
    volume = ArrayVolume(raw, "raw")
    labels = ArrayVolume(np.random.default_rng(1).integers(0, 3, EXTENT), "labels")
    mode = Own("percentiles", 5, 90, clip=clip, by_slice=by_slice, nonzero=True)
    sampler = Sampler(
        [Scene({"in": volume}, {"out": labels})],
        {"in": InputPatch((1, 4, 4))},
        {"out": OutputPatch((1, 4, 4), BoundaryTarget())},
        normalise=mode,
        seed=3,
    )
    found, wanted = sampler.normalisations[0]["in"], normalisation(volume, mode)
    assert found.record() == wanted.record()
    planes = np.arange(EXTENT[0])
    values = found.apply(raw[None], planes=planes)
    assert np.array_equal(values, wanted.apply(raw[None], planes=planes))
    assert not values[raw[None] == 0].any()
