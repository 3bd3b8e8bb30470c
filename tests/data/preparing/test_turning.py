"""Scans turned to directions, beside nibabel; grids whose first centres coincide, beside SciPy."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from nibabel import orientations
from scipy.ndimage import map_coordinates
from scipy.spatial.transform import Rotation

from znnpy.config.prepare_section import PrepareSection, ResampleSection
from znnpy.data.preparing.resampling import Resampling, labels_resampled, new_shape
from znnpy.data.preparing.scan import prepare, prepared_labels
from znnpy.data.preparing.turning import Turn, oriented
from znnpy.data.volume import ArrayVolume

LINEAR = ResampleSection(order=1, grid="centres")
AFFINES = [
    Rotation.random(random_state=seed).as_matrix() @ np.diag(sign)
    for seed, sign in enumerate(product((1, -1), repeat=3))
]


def lying(affine: np.ndarray) -> tuple[tuple[float, float, float], ...]:
    """Directions z, y, x of an affine whose columns are x, y, z."""
    return tuple(tuple(float(v) for v in column) for column in affine.T[::-1])  # type: ignore[misc]


@pytest.mark.parametrize("letters", ["RAS", "LPS", "SRP", "AIL"])
def test_scans_are_turned_as_nibabel_turns_them(letters: str) -> None:
    array = np.random.default_rng(0).random((1, 3, 4, 5))
    for affine in AFFINES:
        now = orientations.io_orientation(np.block([[affine, np.zeros((3, 1))], [0, 0, 0, 1]]))
        then = orientations.ornt_transform(now, orientations.axcodes2ornt(letters))
        wanted = orientations.apply_orientation(array[0].transpose(2, 1, 0), then)
        turn = oriented(lying(affine), letters)
        found = turn.applied(array)[0]
        assert np.array_equal(found, wanted)
        assert np.array_equal(turn.undone(found), array[0])
        shape = turn.size((3, 4, 5))
        assert shape == found.shape


def test_turns_come_back() -> None:
    array = np.arange(60).reshape(1, 3, 4, 5)
    for axes, back in product(permutations(range(3)), product((False, True), repeat=3)):
        turn = Turn(axes, back)
        assert np.array_equal(turn.undone(turn.applied(array)[0]), array[0])


def test_a_scan_and_its_labels_are_turned_alike() -> None:
    raw = np.random.default_rng(0).random((1, 6, 5, 4)).astype(np.float32)
    volume, labels = ArrayVolume(raw, "a", (2.0, 3.0, 4.0)), ArrayVolume((raw > 0.5) * 1, "b")
    volume.directions = ((0, 0, -1), (1, 0, 0), (0, -1, 0))
    section = PrepareSection(orient="RAS", crop=False)
    found = prepare(volume, section)
    assert np.array_equal(found.array[0], raw[0].transpose(1, 2, 0)[:, ::-1, ::-1])
    assert (found.before, found.whole) == ((3.0, 4.0, 2.0), (5, 4, 6))
    assert np.array_equal(prepared_labels(labels, found, section).read_all(), found.array > 0.5)


@pytest.mark.parametrize("after", [(1.5, 1.0, 2.0), (0.7, 3.0, 9.0)])
def test_centres_of_first_voxels_coincide(after: tuple[float, float, float]) -> None:
    before, shape = (1.0, 1.0, 2.5), (9, 10, 7)
    given = np.random.default_rng(1).random(shape, np.float32)
    wanted = new_shape(shape, before, after, "centres")
    assert wanted == tuple(
        round((n - 1) * a / b + 1) for n, a, b in zip(shape, before, after, strict=True)
    )
    how = Resampling.of(shape, wanted, before, after, LINEAR)
    steps = [b / a for a, b in zip(before, after, strict=True)]
    places = np.stack(np.meshgrid(*map(np.arange, wanted), indexing="ij"))
    at = places * np.reshape(steps, (3, 1, 1, 1))
    theirs = map_coordinates(given.astype(float), at, order=1, mode="nearest")
    np.testing.assert_allclose(how.applied(given), theirs, atol=1e-6)
    labels = (given * 3).astype(np.uint8)
    parts = [
        map_coordinates((labels == label).astype(float), at, order=1, mode="nearest")
        for label in range(3)
    ]
    best = np.sort(parts, axis=0)
    clear = best[-1] - best[-2] > 1e-3
    found = labels_resampled(labels, how)
    assert np.array_equal(found[clear], np.argmax(parts, axis=0)[clear])


def test_middles_of_oblique_scans_coincide() -> None:
    sizes = (1.0, 1.0, 2.5), (1.3, 0.8, 2.0)
    how = Resampling.of((9, 10, 7), (7, 13, 9), *sizes, LINEAR, oblique=True)
    back = Resampling.of((7, 13, 9), (9, 10, 7), *sizes[::-1], LINEAR, oblique=True)
    for axis, (n, m) in enumerate(zip(how.shape, how.wanted, strict=True)):
        step = sizes[1][axis] / sizes[0][axis]
        places = n / 2 + (np.arange(m) - m / 2) * step
        line = np.arange(n, dtype=np.float32)
        assert how.matrix(axis) @ line == pytest.approx(np.clip(places, 0, n - 1))
        assert back.starts[axis] == pytest.approx(-how.starts[axis] / step)
    volume = ArrayVolume(np.ones((1, 3, 3, 3), np.float32), "a")
    assert not prepare(volume, PrepareSection(crop=False)).turn.oblique
    volume.directions = ((0.0, 0.6, 0.8), (0.0, 0.8, -0.6), (1.0, 0.0, 0.0))
    assert prepare(volume, PrepareSection(crop=False)).turn.oblique


def test_a_grid_of_as_many_voxels_may_differ() -> None:
    how = Resampling.of((3, 3, 3), (3, 3, 3), (1.0, 1.0, 1.0), (1.1, 1.0, 1.0), LINEAR)
    assert not how.idle
    assert Resampling.of((3, 3, 3), (3, 3, 3), (1, 1, 1), (1, 1, 1), LINEAR).idle


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"orient": "RAX"}, "must hold one letter each"),
        ({"orient": "RLS"}, "must hold one letter each"),
        ({"orient": "RA"}, "must hold one letter each"),
        ({"orient": "RAS", "transpose": [2, 1, 0]}, "must not be said"),
        ({"resample": {"order": 3, "grid": "centres"}}, "must be 1 where grid is centres"),
    ],
)
def test_wrong_keys(keys: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PrepareSection.model_validate(keys)
