"""Objects from predictions whose objects are known."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable

import h5py
import numpy as np
import pytest
from blocks import ROOT
from grid import FAR, GRID, NEAREST, Triple, affinities, noisy, same
from mutex_by_sets import brute_force
from optional import needs_bioimage_cpp
from scipy import ndimage
from skimage.segmentation import watershed as flood

from znnpy.errors import VolumeError
from znnpy.metrics import adapted_rand, from_boundary
from znnpy.segment.methods import agglomerate, components, multicut, mutex, watershed


def boundary(labels: np.ndarray) -> np.ndarray:
    return 1 - affinities(labels, NEAREST).min(axis=0, keepdims=True)


@pytest.mark.parametrize("kind", ["boundary", "foreground"])
def test_components_are_those_of_scipy(kind: str) -> None:
    values = np.random.default_rng(1).random((1, 9, 10, 11)).astype(np.float32)
    inside = values[0] < 0.3 if kind == "boundary" else values[0] > 0.3
    found = components(values, kind, 0.3, ())
    assert same(found, ndimage.label(inside)[0])
    assert np.array_equal(found > 0, inside)


def test_components_of_affinities() -> None:
    assert same(components(affinities(GRID, NEAREST), "affinity", 0.5, NEAREST), GRID)


@pytest.mark.parametrize("kind", ["boundary", "affinity"])
def test_watershed_fills_boundaries(kind: str) -> None:
    values = boundary(GRID) if kind == "boundary" else affinities(GRID, NEAREST)
    found = watershed(noisy(values, 0.08), kind, 0.5, NEAREST, 20)
    assert found.min() > 0
    inside = boundary(GRID)[0] == 0
    assert same(found[inside], GRID[inside])


def test_watershed_keeps_to_the_foreground() -> None:
    """Two touching balls; their seeds are apart only at a high threshold."""
    z, y, x = np.ogrid[:15, :15, :30]
    balls = [np.exp(-((z - 7) ** 2 + (y - 7) ** 2 + (x - c) ** 2) / 40) for c in (8, 20)]
    values = np.maximum(*balls)[None].astype(np.float32)
    assert len(np.unique(components(values, "foreground", 0.3, ()))) == 2
    found = watershed(values, "foreground", 0.8, (), 0)
    assert np.array_equal(found > 0, values[0] > 0.5)
    assert len(np.unique(found)) == 3
    left, right = found[7, 7, 8], found[7, 7, 20]
    assert left != right
    assert (found[..., :14][found[..., :14] > 0] == left).all()
    assert (found[..., 15:][found[..., 15:] > 0] == right).all()


@pytest.mark.parametrize("kind", ["boundary", "foreground"])
def test_watershed_of_the_sample_is_that_of_scikit_image(kind: str) -> None:
    """But for equal seeds, the first of which it leaves to its heap: a little noise tells bytes apart."""
    with h5py.File(ROOT / "volumes" / "fibsem" / "test-image.h5") as file:
        inside = np.float32(file["stack"][:24, :90, :100]) / 256
    inside += np.random.default_rng(0).random(inside.shape, np.float32) / 512
    values = inside if kind == "foreground" else 1 - inside
    found = watershed(values[None], kind, 0.6 if kind == "foreground" else 0.4, (), 20)
    height = 1 - inside
    seeds = from_boundary(height, 0.4, min_size=20).astype(np.int32)
    mask = height < 0.5 if kind == "foreground" else None
    assert seeds.max() > 20
    assert np.array_equal(found, flood(height, seeds, mask=mask))


JOINING = [agglomerate, pytest.param(multicut, marks=needs_bioimage_cpp)]


@pytest.mark.parametrize("join", JOINING)
@pytest.mark.parametrize("kind", ["boundary", "affinity"])
@pytest.mark.parametrize("resolution", [(1, 1, 1), (40, 4, 4)])
def test_joined_fragments_are_the_objects(
    join: Callable[..., np.ndarray], kind: str, resolution: tuple[float, float, float]
) -> None:
    """Through noise, with a hole in a wall, whatever shows them; walls belong to either side."""
    truth = np.kron(np.arange(1, 13).reshape(1, 3, 4), np.ones((8, 16, 14), int))
    walls = boundary(truth)
    walls[0, 3:5, 8, 14] = 0
    shown = walls if kind == "boundary" else affinities(truth, NEAREST)
    found = join(noisy(shown, 0.05), kind, 0.5, NEAREST, 0, resolution=resolution)
    assert found.dtype == np.uint32
    inside = boundary(truth)[0] == 0
    assert adapted_rand(truth[inside], found[inside]).error < 0.02
    assert found[
        1:
    ].all()  # the first section is a wall, which belongs to nobody if it is cut by itself


@pytest.mark.parametrize("find", [watershed, *JOINING])
def test_nothing_to_begin_from(find: Callable[..., np.ndarray]) -> None:
    assert not find(np.ones((1, 4, 5, 6), np.float32), "boundary", 0.5, (), 0).any()


def test_nothing_below_the_threshold() -> None:
    values = np.ones((1, 4, 5, 6), np.float32)
    assert not components(values, "boundary", 0.5, ()).any()


@needs_bioimage_cpp
@pytest.mark.parametrize("threshold", [0.5, 0.3])
def test_mutex_is_the_papers_algorithm(threshold: float) -> None:
    values = np.random.default_rng(2).random((len(FAR), 4, 5, 6)).astype(np.float32)
    signed = np.concatenate([values[:3], np.float32(2 * threshold) - values[3:]])
    assert same(mutex(values, "affinity", threshold, FAR), brute_force(signed, FAR, 3))
    shuffled = [4, 0, 3, 2, 6, 1, 5]
    found = mutex(values[shuffled], "affinity", threshold, [FAR[k] for k in shuffled])
    assert same(found, mutex(values, "affinity", threshold, FAR))


@needs_bioimage_cpp
def test_mutex_finds_objects_through_noise() -> None:
    assert same(mutex(affinities(GRID, FAR), "affinity", 0.5, FAR), GRID)
    found = mutex(noisy(affinities(GRID, FAR), 0.2), "affinity", 0.5, FAR)
    assert adapted_rand(GRID, found).error < 0.05


@pytest.mark.parametrize(
    ("machine", "built"),
    [("x86_64", ""), ("aarch64", r" \(no wheel for aarch64: .* C\+\+ compiler\)")],
)
def test_mutex_without_its_package(
    machine: str, built: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bioimage_cpp.segmentation", None)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    message = rf'need the package bioimage-cpp.*: pip install "znnpy\[mutex\]"{built}$'
    with pytest.raises(VolumeError, match=message):
        mutex(affinities(GRID, FAR), "affinity", 0.5, FAR)


@pytest.mark.parametrize("offsets", [NEAREST, FAR[1:], FAR[3:]])
def test_mutex_needs_near_and_far_neighbours(offsets: tuple[Triple, ...]) -> None:
    with pytest.raises(VolumeError, match="next neighbour along each axis"):
        mutex(affinities(GRID, offsets), "affinity", 0.5, offsets)
