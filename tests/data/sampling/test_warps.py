"""Rotated, affine and elastic patches, against SciPy on whole volumes; labels exact, whatever their numbers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.interpolate import BSpline
from scipy.ndimage import gaussian_filter, map_coordinates
from scipy.spatial.transform import Rotation

from znnpy.config.augment_section import DISTORTIONS, AugmentSection
from znnpy.data.sampling.augmentation import Augmentation
from znnpy.data.sampling.distortions import Drawn
from znnpy.data.sampling.draws import Draws
from znnpy.data.sampling.placed import Placed, interpolated, nearest, region_of, room_of
from znnpy.data.sampling.sample import InputPatch, OutputPatch
from znnpy.data.sampling.sampler import Sampler
from znnpy.data.sampling.targets import BoundaryTarget, ImageTarget, MaskTarget, Target
from znnpy.data.sampling.warps import Warp, draw_warp
from znnpy.data.scene import Scene
from znnpy.data.volume import ArrayVolume, Triple64
from znnpy.errors import VolumeError

ROTATE: dict[str, Any] = {"rotate": {"probability": 1.0, "axis": "any"}}
AFFINE: dict[str, Any] = {"affine": {"probability": 1.0, "axes": "zyx"}}
ELASTIC: dict[str, Any] = {
    "elastic": {"probability": 1.0, "spacing": 8, "deviation": [2, 3], "axes": "zyx"}
}
PLANES: dict[str, Any] = {
    "rotate": {"probability": 1.0},
    "affine": {"probability": 1.0},
    "elastic": {"probability": 1.0, "spacing": 8, "deviation": [2, 3]},
}
EACH = [ROTATE, AFFINE, ELASTIC, ROTATE | AFFINE | ELASTIC, PLANES]
NAMES = ["rotate", "affine", "elastic", "all", "planes"]
SHAPE = (28, 40, 44)
IMAGE = gaussian_filter(np.random.default_rng(0).standard_normal(SHAPE), 1.0).astype(np.float32)
BIG = np.random.default_rng(1).integers(2**60, 2**63, SHAPE, dtype=np.uint64)
LOWER, EXTENT = (8, 10, 12), (10, 12, 14)


def settings(keys: dict[str, Any]) -> AugmentSection:
    return AugmentSection.model_validate(keys)


def sampler(
    keys: dict[str, Any] | None,
    image: np.ndarray = IMAGE,
    labels: np.ndarray | None = None,
    target: Target | None = None,
    flips: str = "",
    seed: int = 0,
) -> Sampler:
    known = (image > 0).astype(np.uint8) if labels is None else labels
    return Sampler(
        [Scene({"in": ArrayVolume(image)}, {"out": ArrayVolume(known)})],
        {"in": InputPatch((12, 14, 16))},
        {"out": OutputPatch((10, 12, 14), target or MaskTarget())},
        augmentation=Augmentation(flips, "none", settings(keys) if keys else None),
        normalise="none",
        seed=seed,
    )


def drawn(keys: dict[str, Any], seed: int = 0, resolution: Any = (1.0, 1.0, 1.0)) -> Drawn:
    random = np.random.default_rng(seed)
    return Drawn.of(settings(keys), random, LOWER, EXTENT, resolution)


def read_at(placed: Placed) -> np.ndarray:
    """Return where the voxels asked for are read, float64 (3, z, y, x) of the scene."""
    (z, y, x), (bottom, height, width) = placed.cut
    sections = np.arange(z, bottom)
    number = np.searchsorted(placed.ends, sections, side="right")
    found = placed.places[:, number, y:height, x:width].astype(np.float64)
    if len(found) < 3:
        as_it_lies = np.broadcast_to(sections[:, None, None], found.shape[1:])
        found = np.concatenate([as_it_lies[None], found])
    return found + np.reshape(placed.base, (3, 1, 1, 1))


def exact(warp: Warp, places: np.ndarray) -> np.ndarray:
    """Return where places (3, n) are read, by NumPy and SciPy's basis functions, summed over all points."""
    moved = warp.matrix @ (places - warp.centre[:, None]) + warp.centre[:, None]
    if warp.control is None:
        return moved
    basis = BSpline.basis_element([-2, -1, 0, 1, 2], extrapolate=False)
    parts = [
        np.nan_to_num(basis((place - first)[:, None] / step - np.arange(n)))
        for place, first, step, n in zip(
            places, warp.origin, warp.spacing, warp.control.shape[1:], strict=True
        )
    ]
    return moved + np.einsum("abcd,nb,nc,nd->an", warp.control, *parts)


@pytest.mark.parametrize("keys", EACH, ids=NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_places_are_those_of_scipys_splines(keys: dict[str, Any], seed: int) -> None:
    upper = tuple(a + n for a, n in zip(LOWER, EXTENT, strict=True))
    found = drawn(keys, seed, (2.0, 1.0, 1.0))
    placed = found.places(LOWER, upper)
    assert placed is not None
    assert found.warp is not None
    lattice = np.meshgrid(*map(np.arange, LOWER, upper), indexing="ij")
    wanted = exact(found.warp, np.reshape(lattice, (3, -1)).astype(np.float64))
    np.testing.assert_allclose(read_at(placed).reshape(3, -1), wanted, atol=1e-5)
    np.testing.assert_allclose(placed.low, wanted.min(axis=1), atol=1e-5)
    np.testing.assert_allclose(placed.high, wanted.max(axis=1), atol=1e-5)


@pytest.mark.parametrize("keys", EACH, ids=NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_values_and_labels_are_those_of_scipy_on_the_whole_volume(
    keys: dict[str, Any], seed: int
) -> None:
    upper = tuple(a + n for a, n in zip(LOWER, EXTENT, strict=True))
    found = drawn(keys, seed)
    placed = found.places(LOWER, upper)
    assert placed is not None
    places = read_at(placed)
    assert found.warp is not None
    room = room_of(found.warp)
    low, high = region_of(placed.low, placed.high, room)
    index = [np.arange(a, b) for a, b in zip(low, high, strict=True)]
    padded = np.pad(IMAGE, 60, mode="reflect")
    read = padded[np.ix_(*(it + 60 for it in index))]
    wanted = map_coordinates(IMAGE.astype(np.float64), places, order=3, mode="mirror")
    values = interpolated(np.stack([read, -2 * read]), low, placed)
    np.testing.assert_allclose(values, [wanted, -2 * wanted], atol=4e-5)
    assert (np.array(region_of(placed.low, placed.high)[0]) - room == low).all()
    assert found.warp.flat == (room[0] == 0)
    inside = np.stack([(a + 0.5 >= 0) & (a + 0.5 < n) for a, n in zip(places, SHAPE, strict=True)])
    small = (BIG % 1000).astype(np.uint16)
    flat = map_coordinates(small, places, order=0, mode="nearest")
    voxels = np.pad(small, 60, mode="edge")[np.ix_(*(it + 60 for it in index))]
    kept = nearest([np.stack([voxels, voxels + 1])], low, placed)[0]
    np.testing.assert_array_equal(kept[0][inside.all(0)], flat[inside.all(0)])
    np.testing.assert_array_equal(kept[1], kept[0] + 1)


@pytest.mark.parametrize(
    "moves", [{}, {"slip": {"probability": 1.0, "shift": 4}}, {"slip": 3, "step": 4}]
)
@pytest.mark.parametrize("cut", [(), ((1, 2, 1), (9, 12, 11)), ((4, 5, 6), (5, 7, 9))])
def test_sections_read_alike_are_those_read_one_by_one(moves: dict[str, Any], cut: Any) -> None:
    """The same values, voxels and ends as by a warp that has displacements, all of them 0."""
    turned = {"rotate": {"probability": 1.0}, "affine": {"probability": 1.0}}
    shifts = {
        key: it if isinstance(it, dict) else {"probability": 1.0, "shift": it}
        for key, it in moves.items()
    }
    for seed in range(4):
        found = drawn(turned | shifts, seed)
        assert found.warp is not None
        assert found.warp.alike
        still = np.zeros((3, 4, 4, 4))
        slow = replace(found, warp=replace(found.warp, control=still), made={})
        upper = (18, 22, 26)
        one, other = found.places(LOWER, upper), slow.places(LOWER, upper)
        assert one is not None and other is not None  # noqa: PT018
        assert len(one.ends) == one.places.shape[1] == len(list(found.runs(LOWER[0], upper[0])))
        assert len(other.ends) == 10
        np.testing.assert_array_equal([one.low, one.high], [other.low, other.high])
        if cut:
            one, other = replace(one, cut=cut), replace(other, cut=cut)
        low, high = region_of(one.low, one.high, room_of(found.warp))
        assert (high[2] - low[2]) % 16 == 0
        index = [np.arange(a, b) + 60 for a, b in zip(low, high, strict=True)]
        read, known = (np.pad(it, 60, mode="reflect")[np.ix_(*index)] for it in (IMAGE, BIG))
        mine, theirs = (interpolated(read[None].copy(), low, it) for it in (one, other))
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
        (voxels,), (wanted,) = (nearest([known[None]], low, it) for it in (one, other))
        np.testing.assert_array_equal(voxels, wanted)


@pytest.mark.parametrize("axis", ["z", "any"])
@pytest.mark.parametrize("resolution", [(1.0, 1.0, 1.0), (40.0, 4.0, 8.0)])
def test_a_rotation_keeps_lengths_in_space(axis: str, resolution: Any) -> None:
    found = drawn({"rotate": {"probability": 1.0, "axis": axis}}, 3, resolution).warp
    assert found is not None
    size = np.array(resolution)
    space = found.matrix * size[:, None] / size
    np.testing.assert_allclose(space @ space.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(space) == pytest.approx(1)
    if axis == "z":
        random = np.random.default_rng(3)
        angle = 360 * random.random(2)[1] - 180
        # SciPy's axes are x, y, z.
        turned = Rotation.from_euler("z", -angle, degrees=True).as_matrix()[::-1, ::-1]
        np.testing.assert_allclose(space, turned, atol=1e-12)
    np.testing.assert_allclose(exact(found, found.centre[:, None])[:, 0], found.centre)
    read = found.places(found.centre[None], 1, 1, (0, 0, 0))
    still = [*found.centre] if axis == "any" else [0, *found.centre[1:]]
    np.testing.assert_allclose(read[1], still, rtol=1e-6)


@pytest.mark.parametrize(
    ("row", "along_z", "flat"),
    [
        ((1, 0, 0), None, True),
        ((1, 0, 0), 0.0, True),
        ((1, 0, 0), 0.1, False),
        ((1, 0.1, 0), None, False),
        ((0.9, 0, 0), 0.0, False),
        ((1, 0, 1e-9), None, False),
    ],
)
def test_sections_stay_where_z_is_read_as_it_is(
    row: tuple[float, ...], along_z: float | None, flat: bool
) -> None:
    matrix, control = np.eye(3) + 0.01, np.ones((3, 4, 4, 4))
    matrix[0] = row
    control[0] = along_z or 0
    warp = Warp(matrix, np.zeros(3), None if along_z is None else control, np.zeros(3), np.ones(3))
    assert warp.flat == flat


def test_scale_and_shear_are_within_what_is_asked() -> None:
    keys = {"probability": 1.0, "scale": [0.5, 2.0], "shear": [-0.2, 0.1]}
    for seed in range(30):
        for axes in ("yx", "zyx"):
            found = drawn({"affine": {**keys, "axes": axes}}, seed).warp
            assert found is not None
            diagonal, beside = np.diag(found.matrix), found.matrix[~np.eye(3, dtype=bool)]
            assert ((diagonal >= 0.5) & (diagonal <= 2)).all()
            assert ((beside >= -0.2) & (beside <= 0.1)).all()
            if axes == "yx":
                np.testing.assert_array_equal(found.matrix[0], [1, 0, 0])
                np.testing.assert_array_equal(found.matrix[:, 0], [1, 0, 0])


def test_points_of_displacements_are_as_far_apart_in_space() -> None:
    found = drawn(ELASTIC, 5, (2.0, 1.0, 1.0)).warp
    assert found is not None
    assert found.spacing.tolist() == [4, 8, 8]


def test_only_planes_are_deformed_where_axes_say_so() -> None:
    keys = {"elastic": {"probability": 1.0, "deviation": [2, 3], "axes": "yx"}}
    placed = drawn(keys).places((0, 0, 0), (3, 4, 5))
    assert placed is not None
    places = read_at(placed)
    assert len(placed.places) == 2
    assert (places[0] == np.arange(3)[:, None, None]).all()
    assert drawn(keys).warp.flat  # type: ignore[union-attr]
    assert (places[1] != np.arange(4)[:, None]).any()


@pytest.mark.parametrize("keys", EACH, ids=NAMES)
@pytest.mark.parametrize("flips", ["", "zyx"])
def test_labels_move_with_their_image(keys: dict[str, Any], flips: str) -> None:
    """The labels are where the image is above 0, so after a warp, too, but next to it."""
    made, plain = sampler(keys, flips=flips), sampler(None, flips=flips)
    for index in range(6):
        patch = made.sample(index)
        image = patch.images["in"][0, 1:-1, 1:-1, 1:-1]
        known = (patch.weights["out"][0] > 0) & (abs(image) > 0.25)
        assert known.sum() > 30
        agreed = (image > 0) == (patch.targets["out"][0] > 0.5)
        assert agreed[known].mean() > 0.97
        assert not np.array_equal(patch.images["in"], plain.sample(index).images["in"])


@pytest.mark.parametrize("flips", ["", "zyx"])
def test_labels_that_lie_within_the_image_move_with_it(flips: str) -> None:
    labels = (IMAGE > 0).astype(np.uint8)[4:24, 6:36, 5:40]
    inside = ArrayVolume(labels, offset=(4.0, 6.0, 5.0))
    made = Sampler(
        [Scene({"in": ArrayVolume(IMAGE)}, {"out": inside})],
        {"in": InputPatch((12, 14, 16))},
        {"out": OutputPatch((10, 12, 14), MaskTarget())},
        augmentation=Augmentation(flips, "none", settings(EACH[3])),
        normalise="none",
    )
    for index in range(6):
        patch = made.sample(index)
        image = patch.images["in"][0, 1:-1, 1:-1, 1:-1]
        known = (patch.weights["out"][0] > 0) & (abs(image) > 0.25)
        assert known.sum() > 30
        assert ((image > 0) == (patch.targets["out"][0] > 0.5))[known].mean() > 0.97


def test_numbers_of_objects_stay_whole_beyond_what_doubles_hold() -> None:
    placed = drawn(ROTATE).places(LOWER, (12, 14, 16))
    assert placed is not None
    low, high = region_of(placed.low, placed.high)
    index = [np.arange(a, b).clip(0, n - 1) for a, b, n in zip(low, high, SHAPE, strict=True)]
    (found,) = nearest([BIG[np.ix_(*index)][None]], low, placed)
    assert found.dtype == np.uint64
    assert np.isin(found, BIG).all()


def test_beyond_the_labels_nothing_counts_and_boundaries_are_made_afterwards() -> None:
    labels = np.zeros(SHAPE, np.uint32) + 7
    made = sampler(ROTATE, labels=labels, target=BoundaryTarget(1))
    unknown = 0
    for index in range(8):
        patch = made.sample(index)
        assert not patch.targets["out"].any()  # one object: what is beyond makes no boundary
        unknown += int((patch.weights["out"] == 0).sum())
    assert unknown > 0


def test_samples_are_the_seeds_own_and_positions_those_without() -> None:
    every = EACH[3]
    one, two, other = (sampler(every, flips="zyx", seed=s) for s in (3, 3, 4))
    for index in (7, 0, 1234):
        first, again = one.sample(index).images["in"], two.sample(index).images["in"]
        assert np.array_equal(first, again)
        assert first.dtype == np.float32
        assert first.flags.c_contiguous
        assert not np.array_equal(first, other.sample(index).images["in"])
    never = {key: {"probability": 1e-12} for key in ("rotate", "affine", "elastic")}
    same, plain = sampler(never, flips="zyx"), sampler(None, flips="zyx")
    for index in range(5):
        np.testing.assert_array_equal(
            same.sample(index).images["in"], plain.sample(index).images["in"]
        )


def test_samples_are_the_same_whatever_threads_draw_them() -> None:
    every: dict[str, Any] = {name: {"probability": 0.7} for name in DISTORTIONS}
    made, numbers = sampler(every, flips="zyx"), range(40)
    wanted = [made.sample(number) for number in numbers]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(sampler(every, flips="zyx").sample, numbers))
    for one, other in zip(wanted, found, strict=True):
        for mine, theirs in zip(vars(one).values(), vars(other).values(), strict=True):
            assert all(np.array_equal(mine[name], theirs[name]) for name in mine)


def test_places_within_those_that_are_known_are_not_made_again() -> None:
    found = drawn(ROTATE)
    wide = found.places((1, 2, 3), (11, 22, 33))
    inner = found.places((2, 3, 4), (10, 21, 32))
    far = found.places((2, 3, 4), (3, 21, 32))  # a tenth of them
    assert wide is not None and inner is not None and far is not None  # noqa: PT018
    assert inner.places is wide.places
    assert far.places is not wide.places
    for it, lower, upper in ((inner, (2, 3, 4), (10, 21, 32)), (far, (2, 3, 4), (3, 21, 32))):
        own = drawn(ROTATE).places(lower, upper)
        assert own is not None
        np.testing.assert_allclose(read_at(it), read_at(own), atol=1e-5)


def test_a_step_is_read_by_the_warp() -> None:
    """Sections that move are warped from where they are read."""
    keys = {"step": {"probability": 1.0, "shift": 5}, **AFFINE}
    found = drawn(keys, 2)
    assert found.warp is not None
    ((span, (down, across)),) = found.moved
    placed = found.places(LOWER, (18, 14, 15))
    assert placed is not None
    lattice = np.stack(np.meshgrid(*map(np.arange, LOWER, (18, 14, 15)), indexing="ij"))
    lattice = lattice.astype(np.float64)
    first = span[0] - LOWER[0]
    assert 0 < first < 10
    lattice[1:, first:] += np.reshape((down, across), (2, 1, 1, 1))
    wanted = exact(found.warp, lattice.reshape(3, -1)).reshape(lattice.shape)
    np.testing.assert_allclose(read_at(placed), wanted, atol=1e-5)


def test_constant_images_stay_constant_and_nothing_is_drawn_without_keys() -> None:
    made = sampler(EACH[3], np.full(SHAPE, 3.0, np.float32), target=ImageTarget())
    np.testing.assert_allclose(made.sample(0).images["in"], 3.0, rtol=1e-5)
    nothing = draw_warp(
        settings({}), Draws(np.random.default_rng(0)), LOWER, EXTENT, (1.0, 1.0, 1.0)
    )
    assert nothing is None


def thin_sampler(masks: dict[str, Any]) -> Sampler:
    """Of two sections, which an elastic patch can leave."""
    elastic = {"probability": 1.0, "spacing": 64, "deviation": [0, 16], "axes": "zyx"}
    labels = IMAGE[:2] > 0
    return Sampler(
        [Scene({"in": ArrayVolume(IMAGE[:2])}, {"out": ArrayVolume(labels)}, masks)],
        {"in": InputPatch((1, 8, 8))},
        {"out": OutputPatch((1, 8, 8), MaskTarget())},
        augmentation=Augmentation("", "none", settings({"elastic": elastic})),
        normalise="none",
    )


def test_warps_that_leave_all_labels_are_drawn_anew() -> None:
    source = thin_sampler({})
    for number in range(40):
        assert source.sample(number).weights["out"].any()


def test_where_nothing_counts_what_is_moved_is_named_too() -> None:
    source = thin_sampler({"out": ArrayVolume(np.zeros((2, 40, 44), np.uint8))})
    with pytest.raises(VolumeError, match=r"what augment moves \(rotate, affine, elastic\)"):
        source.sample(0)


@pytest.mark.parametrize("resolution", [(1e-3, 1e6, 1.0), (1.0, 1.0, 1e-7)])
def test_a_warp_that_reads_far_more_than_a_patch_is_refused(resolution: Triple64) -> None:
    volume = ArrayVolume(IMAGE, "array", resolution)
    source = Sampler(
        [Scene({"in": volume}, {"out": volume})],
        {"in": InputPatch((12, 14, 16))},
        {"out": OutputPatch((10, 12, 14), ImageTarget())},
        augmentation=Augmentation("", "none", settings(PLANES)),
        normalise="none",
    )
    with pytest.raises(VolumeError, match=r"would be read for a patch.*data\.resolution"):
        source.sample(0)
