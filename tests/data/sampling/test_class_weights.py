"""Both classes weigh the same, per image; absent classes change nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from znnpy.data.sampling.class_weights import count_patch, count_volume, rebalance
from znnpy.data.sampling.targets import AffinityTarget, BoundaryTarget, ClassesTarget, Target
from znnpy.data.values import moments
from znnpy.data.volume import ArrayVolume

BITS = arrays(np.float32, (2, 2, 3, 4), elements=st.sampled_from([0.0, 1.0]))


@given(BITS, BITS)
def test_classes_weigh_the_same(target: np.ndarray, weight: np.ndarray) -> None:
    out = rebalance(target, weight, count_patch(target, weight))
    for image in range(2):
        positive = out[image][target[image] > 0.5].sum()
        negative = out[image][target[image] <= 0.5].sum()
        assert positive + negative == pytest.approx(weight[image].sum(), abs=1e-3)
        if positive and negative:
            assert positive == pytest.approx(negative, rel=1e-5)
        else:
            assert np.array_equal(out[image], weight[image])
    assert not out[weight == 0].any()


CLASSES = arrays(np.int64, (2, 3, 4), elements=st.integers(0, 3))


@given(CLASSES, arrays(np.bool_, (2, 3, 4)))
def test_all_classes_weigh_the_same(labels: np.ndarray, known: np.ndarray) -> None:
    """A voxel's weight is that of all channels, of which losses of classes read the first alone."""
    target, weight = ClassesTarget(4).compute(labels[None], known)
    out = rebalance(target, weight, count_patch(target, weight), exclusive=True)
    assert (out == out[0]).all()
    assert not out[0][~known].any()
    sums = [out[0][known & (labels == number)].sum() for number in np.unique(labels[known])]
    assert sums == pytest.approx([known.sum() / max(1, len(sums))] * len(sums), rel=1e-5)


@pytest.mark.parametrize("target", [BoundaryTarget(2), AffinityTarget()])
def test_slabs_count_like_the_whole(monkeypatch: pytest.MonkeyPatch, target: Target) -> None:
    random = np.random.default_rng(0)
    labels, mask = random.integers(0, 4, (13, 5, 6)), random.integers(0, 2, (13, 5, 6))
    value, weight = target.compute(labels[None], mask > 0)
    whole = count_patch(value, weight)
    for slab in (1, 1000, 10**9):
        monkeypatch.setattr(moments, "SLAB", slab)
        counts = count_volume(ArrayVolume(labels), ArrayVolume(mask), target)
        assert np.array_equal(counts.positive, whole.positive)
        assert np.array_equal(counts.negative, whole.negative)
