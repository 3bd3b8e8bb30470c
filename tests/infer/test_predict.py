"""The same bits whatever is asked for: blocks, threads, regions; values against the plain reference."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from znnpy.config import config_from
from znnpy.data.scene import Scene
from znnpy.data.values.normalization import normalisation
from znnpy.data.volume import ArrayVolume, mirror_read
from znnpy.geometry.shape_inference import fit
from znnpy.infer.blocks import Region, input_region, whole_field
from znnpy.infer.config_model import Weights, patch_model, prediction_of
from znnpy.infer.grid import Grid
from znnpy.infer.predict import Finish, VolumePrediction
from znnpy.learning.readings import LOGITS
from znnpy.network import build_network, initial_parameters
from znnpy.network.dense_conversion import dense
from znnpy.reference import evaluate as reference

LAYERS = [
    {"conv": {"channels": 5, "size": [1, 3, 2], "function": "relu"}},
    {"max_filter": [1, 2, 2]},
    {"conv": {"channels": 2, "size": [3, 2, 3]}},
]
POOLED = [LAYERS[0], {"max_pool": [1, 2, 2]}, LAYERS[2]]
EXTENT = (9, 17, 19)


def setup(border="valid", conv="direct", layers=None, threads=2):
    config = config_from(
        {
            "network": {"layers": layers or LAYERS},
            "data": {"border": border},
            "training": {"output_shape": 4, "conv": conv},
            "run": {"threads": threads},
        }
    )
    network = build_network(config.network)
    rng = np.random.default_rng(0)
    volume = ArrayVolume(rng.integers(0, 255, EXTENT).astype(np.uint8), "raw")
    weights = Weights(config, network, None, initial_parameters(network, 1))
    return weights, Scene({"input": volume}, {})


@contextmanager
def predicting(weights, scene, patch, finish=None, kept=0, grid=None) -> Iterator[VolumePrediction]:
    config, network = weights.config, weights.network
    field = whole_field(network, scene.images, {"input": (0, 0, 0)}, config.data.border == "mirror")
    norms = {name: normalisation(volume) for name, volume in scene.images.items()}
    with patch_model(config, network, patch, None) as model:
        model.set_parameters(weights.parameters)
        yield VolumePrediction(model, scene, field, norms, finish, kept, grid)


def in_blocks(prediction, block, shift=(0, 0, 0)):
    """The whole field, block by block."""
    shape = prediction.field.shape
    whole = np.full((2, *shape), np.nan, np.float32)
    axes = [range(-s, n, step) for n, step, s in zip(shape, block, shift, strict=True)]
    everything = Region((0, 0, 0), shape)
    for place in itertools.product(*axes):
        region = Region(place, tuple(a + n for a, n in zip(place, block, strict=True)))
        part = region.within(everything)
        whole[:, *part.slices()] = prediction.region(part)["output"]
    return whole


def oracle(weights, scene, mirror):
    """float64, in one piece."""
    network = weights.network
    field = whole_field(network, scene.images, {"input": (0, 0, 0)}, mirror)
    geometry = fit(network, field.shape)
    seen = input_region(field, geometry, "input", Region((0, 0, 0), field.shape))
    volume = scene.images["input"]
    raw = normalisation(volume).apply(mirror_read(volume, seen.lower, seen.upper))
    given = {"input": raw[None].astype(np.float64)}
    return reference.forward(network, geometry, weights.parameters, given)["output"][0]


@pytest.mark.quick(1)
@pytest.mark.parametrize("conv", ["direct", "fft", "spectral"])
@pytest.mark.parametrize("border", ["valid", "mirror"])
def test_any_blocks_give_the_same_bits(border, conv):
    weights, scene = setup(border, conv)
    with predicting(weights, scene, (3, 5, 6)) as prediction:
        one = prediction.whole()["output"]
        for block in ((3, 5, 6), (6, 5, 12), (2, 7, 4), (9, 17, 19), (1, 3, 19)):
            assert np.array_equal(in_blocks(prediction, block), one)
    np.testing.assert_allclose(one, oracle(weights, scene, border == "mirror"), atol=1e-4)


@pytest.mark.quick(1)
@pytest.mark.parametrize("conv", ["direct", "fft", "spectral"])
def test_any_threads_give_the_same_bits(conv):
    found = []
    for threads in (1, 2, 5, 8):
        weights, scene = setup("mirror", conv, threads=threads)
        with predicting(weights, scene, (4, 7, 8)) as prediction:
            found.append(prediction.whole()["output"])
    assert all(np.array_equal(array, found[0]) for array in found[1:])


def test_kept_patches_change_nothing():
    weights, scene = setup()
    with predicting(weights, scene, (3, 5, 6)) as plain:
        one = in_blocks(plain, (2, 3, 5), (1, 1, 2))
    with predicting(weights, scene, (3, 5, 6), kept=7) as keeping:
        runs = []
        keeping._forward = lambda *a, real=keeping._forward: runs.append(1) or real(*a)
        assert np.array_equal(in_blocks(keeping, (2, 3, 5), (1, 1, 2)), one)
    assert len(runs) < 3 * 18


def test_any_patch_gives_close_values():
    weights, scene = setup("mirror", "spectral")
    with predicting(weights, scene, (9, 17, 19)) as prediction:
        one = prediction.whole()["output"]
    with predicting(weights, scene, (4, 4, 4), grid=Grid((4, 4, 4), (1, 2, 3))) as prediction:
        np.testing.assert_allclose(prediction.whole()["output"], one, atol=1e-4)


def test_pooling_predicts_densely_the_same_bits_as_max_filter():
    weights, scene = setup("mirror")
    with predicting(weights, scene, (4, 5, 6)) as prediction:
        filtered = prediction.whole()["output"]
    pooled, _ = setup("mirror", layers=POOLED)
    turned = replace(pooled, network=dense(pooled.network), parameters=weights.parameters)
    with predicting(turned, scene, (4, 5, 6)) as prediction:
        assert np.array_equal(prediction.whole()["output"], filtered)


def test_dense_output_holds_the_grids_of_all_shifts():
    """ZNNi's fragments: the strided net on each shift of the input gives one voxel in four."""
    weights, scene = setup("valid", layers=POOLED)
    turned = replace(weights, network=dense(weights.network))
    with predicting(turned, scene, (7, 6, 5)) as prediction:
        whole = prediction.whole()["output"]
    raw = normalisation(scene.images["input"]).apply(scene.images["input"].read_all())
    for dy, dx in itertools.product(range(2), range(2)):
        part = raw[:, :, dy:, dx:][None].astype(np.float64)
        wanted = whole[:, :, dy::2, dx::2]
        geometry = fit(weights.network, wanted.shape[1:])
        z, y, x = geometry.input_shapes["input"]
        found = reference.forward(
            weights.network, geometry, weights.parameters, {"input": part[..., :z, :y, :x]}
        )["output"][0]
        np.testing.assert_allclose(wanted, found, atol=1e-5)


def test_networks_own_grid():
    weights, scene = setup(layers=POOLED)
    with prediction_of(weights, scene) as prediction:
        one = prediction.whole()["output"]
    assert one.shape == (2, 7, 6, 7)
    with prediction_of(weights, scene, (3, 2, 4)) as prediction:
        assert np.array_equal(prediction.whole()["output"], one)


@pytest.mark.slow
def test_mean_over_flips():
    weights, scene = setup("mirror")
    with predicting(weights, scene, (5, 6, 7), Finish(LOGITS, flips=True)) as prediction:
        mean = prediction.whole()["output"]
        assert np.array_equal(in_blocks(prediction, (2, 7, 9)), mean)
    total = np.zeros(mean.shape)
    for axes in itertools.chain.from_iterable(
        itertools.combinations((0, 1, 2), n) for n in range(4)
    ):
        flipped = dict(weights.parameters)
        flipped = {
            n: np.flip(a, [2 + i for i in axes]) if a.ndim == 5 else a for n, a in flipped.items()
        }
        field = oracle(replace(weights, parameters=flipped), scene, True)
        total += 1 / (1 + np.exp(-field))
    np.testing.assert_allclose(mean, total / 8, atol=1e-5)


def test_two_dimensional_net_has_four_flips():
    weights, scene = setup(layers=[{"conv": {"channels": 2, "size": [1, 3, 3]}}])
    with predicting(weights, scene, (3, 5, 6), Finish(flips=True)) as prediction:
        assert len(prediction._flips()) == 4


def test_uint8_is_rounded():
    finish = Finish(dtype=np.dtype(np.uint8))
    found = np.array([-0.1, 0, 0.4 / 255, 0.6 / 255, 0.5, 1, 1.2], np.float32)
    assert finish.encoded(found).tolist() == [0, 0, 0, 1, 128, 255, 255]


def test_mask_skips_and_clears():
    weights, scene = setup("mirror")
    mask = np.zeros(EXTENT, np.uint8)
    mask[2:6, 4:9, 3:5] = 1
    inside = Scene(scene.images, {}, {"mask": ArrayVolume(mask, "mask")})
    with predicting(weights, scene, (3, 4, 5)) as prediction:
        plain = prediction.whole()["output"]
    with predicting(weights, inside, (3, 4, 5)) as prediction:
        runs = []
        prediction._forward = lambda *a, real=prediction._forward: runs.append(1) or real(*a)
        assert np.array_equal(prediction.whole()["output"], plain * (mask != 0))
        assert len(runs) == 2 * 2 * 1
        prediction._scene = Scene(scene.images, {}, {"m": ArrayVolume(mask, "m", offset=(1, 0, 0))})
        shifted = prediction.whole()["output"]
    assert np.array_equal(shifted[:, 1:], plain[:, 1:] * (mask[:-1] != 0))
    assert not shifted[:, 0].any()
