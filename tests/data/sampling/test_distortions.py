"""Distorted patches: labels stay with their image, voxel by voxel; what is drawn is the seed's and the sample's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import ndimage

from znnpy.config.augment_section import DISTORTIONS, AugmentSection
from znnpy.data.sampling.augmentation import Augmentation
from znnpy.data.sampling.distortions import Drawn
from znnpy.data.sampling.sample import InputPatch, OutputPatch, Patch
from znnpy.data.sampling.sampler import Sampler
from znnpy.data.sampling.targets import BoundaryTarget, ImageTarget, Target
from znnpy.data.scene import Scene
from znnpy.data.volume import ArrayVolume

SHAPE = (9, 30, 34)
NUMBERS = np.arange(1, 1 + np.prod(SHAPE)).reshape(SHAPE)
ALWAYS: Mapping[str, Any] = {"probability": 1.0}


def sampler(
    settings: AugmentSection | None,
    *,
    labels: np.ndarray = NUMBERS,
    target: Target | None = None,
    flips: str = "",
    seed: int = 0,
) -> Sampler:
    scene = Scene({"in": ArrayVolume(NUMBERS)}, {"out": ArrayVolume(labels)})
    return Sampler(
        [scene],
        {"in": InputPatch((6, 10, 12))},
        {"out": OutputPatch((4, 8, 8), target or ImageTarget(), None, (1, 1, 1))},
        augmentation=Augmentation(flips, "none", settings),
        normalise="none",
        seed=seed,
    )


def inner(patch: Patch) -> np.ndarray:
    return patch.images["in"][:, 1:5, 1:9, 2:10]


def moves(**keys: Any) -> AugmentSection:
    return AugmentSection.model_validate({key: {**ALWAYS, "shift": n} for key, n in keys.items()})


@pytest.mark.parametrize("flips", ["", "zyx"])
@pytest.mark.parametrize("keys", [{"slip": 3}, {"step": 4}, {"slip": 2, "step": 3}], ids=str)
def test_labels_move_with_their_image(keys: dict[str, int], flips: str) -> None:
    """Both hold the number of their voxel; beyond the labels nothing is known."""
    drawn, plain = sampler(moves(**keys), flips=flips), sampler(None, flips=flips)
    torn = 0
    for index in range(40):
        patch, still = drawn.sample(index), plain.sample(index)
        known = patch.weights["out"] > 0
        assert (patch.targets["out"] == inner(patch))[known].all()
        assert known.mean() > 0.5
        torn += not np.array_equal(patch.images["in"], still.images["in"])
    assert torn > 30


def test_a_step_is_a_cut_and_a_shift() -> None:
    """By the draw itself, with the volume moved by NumPy."""
    settings = moves(step=3)
    for index in range(20):
        random = np.random.Generator(np.random.Philox(key=0, counter=[0, 0, 1, index]))
        still = sampler(None).sample(index).images["in"][0]
        lower = np.unravel_index(int(still[0, 0, 0]) - 1, SHAPE)
        drawn = Drawn.of(settings, random, lower, (6, 10, 12))
        ((first, _), (down, across)) = drawn.moved[0]
        padded = np.pad(NUMBERS, ((0, 0), (3, 3), (3, 3)), "reflect")
        z, y, x = lower
        wanted = np.stack(
            [
                padded[k, y + 3 + a : y + 13 + a, x + 3 + b : x + 15 + b]
                for k in range(z, z + 6)
                for a, b in [(down, across) if k >= first else (0, 0)]
            ]
        )
        assert np.array_equal(sampler(settings).sample(index).images["in"][0], wanted)
        assert z < first < z + 6


def test_boundaries_are_those_of_the_moved_labels() -> None:
    labels = (NUMBERS // 37).astype(np.uint32)
    settings = moves(slip=3)
    moved = sampler(settings, labels=labels, target=ImageTarget())
    found = sampler(settings, labels=labels, target=BoundaryTarget(1))
    for index in range(10):
        ids = moved.sample(index).targets["out"][0]
        patch = found.sample(index)
        edges = np.zeros(ids.shape, bool)
        for axis in range(3):
            unequal = np.diff(ids, axis=axis) != 0
            lower, upper = ([slice(None)] * 3 for _ in range(2))
            lower[axis], upper[axis] = slice(None, -1), slice(1, None)
            edges[tuple(lower)] |= unequal
            edges[tuple(upper)] |= unequal
        inside = (slice(None), slice(1, -1), slice(1, -1), slice(1, -1))
        known = patch.weights["out"][inside] > 0
        assert np.array_equal(
            patch.targets["out"][inside][known] > 0, edges[1:-1, 1:-1, 1:-1][None][known]
        )


def test_missing_dark_and_dropped_voxels_are_where_they_are_drawn() -> None:
    settings = AugmentSection.model_validate(
        {
            "missing": {**ALWAYS, "sections": 2},
            "dropout": {**ALWAYS, "boxes": 3, "size": [2, 3, 4]},
        }
    )
    gone = 0
    for index in range(30):
        patch, still = sampler(settings).sample(index), sampler(None).sample(index)
        found, before = patch.images["in"][0], still.images["in"][0]
        zero = found == 0
        assert np.array_equal(found[~zero], before[~zero])
        whole = zero.all((1, 2))
        assert 1 <= whole.sum() <= 2
        assert np.ptp(np.flatnonzero(whole)) <= 1
        _, count = ndimage.label(zero[~whole])
        assert zero[~whole].sum() <= 3 * 2 * 3 * 4
        gone += count
        assert np.array_equal(patch.targets["out"], still.targets["out"])  # labels stay
    assert gone > 20


def test_a_dark_section_is_the_only_one_that_changes() -> None:
    settings = AugmentSection.model_validate(
        {"dark": {**ALWAYS, "factor": [0.5, 0.5], "shift": [-1, -1]}}
    )
    for index in range(10):
        found = sampler(settings).sample(index).images["in"][0].astype(np.float64)
        before = sampler(None).sample(index).images["in"][0].astype(np.float64)
        (changed,) = np.flatnonzero((found != before).any((1, 2)))
        mean = before[changed].mean()
        assert np.allclose(found[changed], (before[changed] - mean) * 0.5 + mean - 1, atol=1e-2)


@pytest.mark.parametrize("by", ["volume", "section"])
def test_sections_are_changed_alike_or_each_by_itself(by: str) -> None:
    settings = AugmentSection.model_validate({"brightness": {**ALWAYS, "shift": [-9, 9], "by": by}})
    shifts = []
    for index in range(10):
        found = sampler(settings).sample(index).images["in"][0].astype(np.float64)
        difference = found - sampler(None).sample(index).images["in"][0]
        assert np.ptp(difference, axis=(1, 2)).max() < 1e-2
        shifts.append(difference.mean((1, 2)))
    assert (np.ptp(shifts, axis=1) < 1e-2).all() == (by == "volume")
    assert np.std(np.mean(shifts, axis=1)) > 1


def all_of(probability: float) -> AugmentSection:
    return AugmentSection.model_validate({key: {"probability": probability} for key in DISTORTIONS})


def test_everything_at_once_is_the_seeds_and_the_samples_own() -> None:
    first, again, other = (sampler(all_of(0.5), flips="zyx", seed=s) for s in (3, 3, 4))
    for index in (5, 0, 123456):
        one, two, third = (it.sample(index).images["in"] for it in (first, again, other))
        assert np.array_equal(one, two)
        assert not np.array_equal(one, third)
        assert one.dtype == np.float32
        assert one.flags.c_contiguous
        assert np.isfinite(one).all()


def test_positions_and_turns_are_those_without() -> None:
    """So what is switched on changes nothing else."""
    plain, changed = (
        sampler(None, flips="zyx"),
        sampler(
            AugmentSection.model_validate({"brightness": {**ALWAYS, "by": "volume"}}), flips="zyx"
        ),
    )
    for index in range(10):
        one, two = plain.sample(index), changed.sample(index)
        assert np.array_equal(one.targets["out"], two.targets["out"])
        assert np.ptp(one.images["in"].astype(np.float64) - two.images["in"]) < 1e-2


def test_each_happens_as_often_as_asked() -> None:
    counts = dict.fromkeys(("moved", "missing", "dark", "boxes"), 0)
    settings = AugmentSection.model_validate(
        {key: {"probability": 0.25} for key in ("slip", "missing", "dark", "dropout")}
    )
    for index in range(2000):
        drawn = Drawn.of(settings, np.random.default_rng(index), (0, 0, 0), SHAPE)
        counts["moved"] += bool(drawn.moved)
        counts["missing"] += drawn.missing != (0, 0)
        counts["dark"] += drawn.dark is not None
        counts["boxes"] += bool(drawn.boxes)
    assert all(400 < count < 600 for count in counts.values()), counts


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("contrast", {"factor": [2, 1]}, "must be the least and the largest"),
        ("contrast", {"factor": [0, 1]}, "factor"),
        ("noise", {"deviation": [-1, 0]}, "deviation"),
        ("gamma", {"by": "slice"}, "by"),
        ("missing", {"probability": 0}, "probability"),
        ("slip", {"shift": 0}, "shift"),
        ("low_resolution", {"factor": [0.5, 2]}, "factor"),
        ("blur", {"sigmas": [1, 2]}, "sigmas"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(key: str, value: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        AugmentSection.model_validate({key: value})
