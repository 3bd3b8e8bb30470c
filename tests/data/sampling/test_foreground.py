"""Patches centred on classes: all voxels of a class alike, each class alike, exactly as counted by SciPy and NumPy."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.special import chdtri

from znnpy.data.samples.image_labels import spread
from znnpy.data.sampling import foreground
from znnpy.data.sampling.augmentation import Augmentation
from znnpy.data.sampling.foreground import Foreground, due
from znnpy.data.sampling.patch_positions import Placing
from znnpy.data.sampling.position_index import NO_FLIPS
from znnpy.data.sampling.sample import InputPatch, OutputPatch
from znnpy.data.sampling.sampler import Sampler
from znnpy.data.sampling.targets import AffinityTarget, BoundaryTarget, ClassesTarget, Target
from znnpy.data.scene import Scene
from znnpy.data.values import moments
from znnpy.data.volume import ArrayVolume
from znnpy.distributed.world import World
from znnpy.errors import VolumeError

Triple = tuple[int, int, int]


def labels(shape: Triple = (9, 10, 11), seed: int = 0) -> np.ndarray:
    """Mostly 0, some 1, few 2; 3 nowhere."""
    return np.random.default_rng(seed).choice(3, shape, p=[0.85, 0.13, 0.02]).astype(np.uint8)


def scene(values: np.ndarray, mask: np.ndarray | None = None) -> Scene:
    masks = {} if mask is None else {"out": ArrayVolume(mask)}
    return Scene({"in": ArrayVolume(values)}, {"out": ArrayVolume(values)}, masks)


def counted(
    scenes: list[Scene],
    target: Target,
    wanted: Triple = (1, 1, 1),
    given: Triple = (1, 1, 1),
    **options: object,
) -> Foreground:
    mirror = bool(options.pop("mirror", False))
    patch = OutputPatch(wanted, target, **options)  # type: ignore[arg-type]
    placing = Placing({"in": InputPatch(given)}, {"out": patch}, mirror=mirror, possible=dict)
    return Foreground.counted(scenes, placing, Augmentation().all_flips, World())


def totals(found: Foreground) -> dict[int, int]:
    return {it.channel: int(it.ends[-1]) for it in found.sought}


@pytest.mark.parametrize("side", [1, 3, 64])
def test_each_voxel_of_each_class_is_drawn_as_expected(
    side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chi-squared over all foreground voxels of two scenes, against exact probabilities."""
    monkeypatch.setattr(foreground, "SIDE", side)
    values = [labels((4, 5, 6), 1), labels((3, 4, 5), 2)]
    scenes = [scene(it) for it in values]
    found = counted(scenes, ClassesTarget(4))
    sizes = {k: sum(int((it == k).sum()) for it in values) for k in (1, 2)}
    assert totals(found) == sizes
    random, draws = np.random.default_rng(0), 4000
    seen = Counter(found.draw(random, scenes, NO_FLIPS) for _ in range(draws))
    expected = {
        (number, (int(z), int(y), int(x))): draws / 2 / sizes[k]
        for number, it in enumerate(values)
        for k in (1, 2)
        for z, y, x in np.argwhere(it == k)
    }
    assert set(seen) <= set(expected)
    statistic = sum((seen[at] - want) ** 2 / want for at, want in expected.items())
    # Exceeded once in a million times (`scipy.stats`, which says the same, takes a second to load).
    assert statistic < chdtri(len(expected) - 1, 1e-6)


@pytest.mark.parametrize("side", [2, 64])
@pytest.mark.parametrize("chosen", [BoundaryTarget(2), AffinityTarget(((-2, 0, 0), (0, 1, 0)))])
def test_boundaries_and_cut_affinities_are_those_of_the_whole_volume(
    side: int, chosen: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreground, "SIDE", side)
    ids = np.kron(np.random.default_rng(3).integers(1, 4, (3, 3, 3)), np.ones((3, 4, 5), int))
    found = counted([scene(ids.astype(np.uint16))], chosen)
    value, weight = chosen.compute(ids[None], np.ones(ids.shape, bool))
    wanted = value == (1 if isinstance(chosen, BoundaryTarget) else 0)
    wanted &= weight > 0
    assert totals(found) == {k: int(it.sum()) for k, it in enumerate(wanted)}
    random = np.random.default_rng(0)
    for _ in range(50):
        _, at = found.draw(random, [scene(ids.astype(np.uint16))], NO_FLIPS)
        assert wanted[:, *at].any()


def test_masked_and_ignored_voxels_are_never_drawn() -> None:
    values = labels()
    mask = np.random.default_rng(5).integers(0, 2, values.shape).astype(np.uint8)
    found = counted([scene(values, mask)], ClassesTarget(4, ignore=1))
    assert totals(found) == {2: int(((values == 2) & (mask > 0)).sum())}
    first = counted([scene(values)], ClassesTarget(2, first=1))  # nothing is background
    assert totals(first) == {k - 1: int((values == k).sum()) for k in (1, 2)}


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("offset", [None, (1, 0, 2)])
@pytest.mark.parametrize("stride", [(1, 1, 1), (1, 2, 2)])
def test_patches_hold_their_voxel_in_the_middle_or_at_the_border(
    mirror: bool, offset: Triple | None, stride: Triple
) -> None:
    """Under all flips, with an output off the middle."""
    values = labels((12, 13, 14))
    whole = scene(values)
    options = {"mirror": mirror, "offset": offset, "stride": stride}
    found = counted([whole], ClassesTarget(3), (3, 3, 2), (6, 7, 8), **options)
    placing = found._placing
    extent = placing.boxes["out"].extent
    middles = 0
    for flips in Augmentation().all_flips:
        low, high = placing.range(whole, flips)
        for voxel in np.argwhere(values == 2):
            at = found.position(whole, "out", tuple(map(int, voxel)), flips)
            assert all(a <= p < b for a, p, b in zip(low, at, high, strict=True))
            box = placing.lower(whole, "out", whole.labels["out"], at, flips)
            place = voxel - box
            middle = np.array([3, 3, 2]) // 2 * np.array(stride)
            inside = (place >= 0) & (place < extent)
            middles += bool((place == middle).all())
            # Off the middle only where the valid positions end.
            ends = (np.array(at) == low) | (np.array(at) == np.array(high) - 1)
            assert ((place == middle) | ends).all()
            reached = foreground._reached(placing, whole, "out", Augmentation().all_flips)
            if all(a <= v < b for a, v, b in zip(reached[0], voxel, reached[1], strict=True)):
                assert inside.all()
    assert middles > 10
    inner = values[*(slice(a, b) for a, b in zip(*reached, strict=True))]
    assert totals(found) == {k: int((inner == k).sum()) for k in (1, 2)}


def sampler(values: list[np.ndarray], share: float, seed: int = 0) -> Sampler:
    return Sampler(
        [scene(it) for it in values],
        {"in": InputPatch((3, 3, 3))},
        {"out": OutputPatch((3, 3, 3), ClassesTarget(3))},
        augmentation=Augmentation(),
        normalise="none",
        seed=seed,
        foreground=share,
    )


def rare(made: Sampler, count: int) -> list[bool]:
    """Whether the middle voxel of samples is of class 2."""
    return [bool(made.sample(n).targets["out"][2, 1, 1, 1]) for n in range(count)]


def test_the_share_of_rare_classes_is_exactly_as_expected() -> None:
    """With one voxel of a class in a volume, in the middle: all centred patches lie on it."""
    values = np.zeros((20, 20, 20), np.uint8)
    values[9, 8, 7] = 2
    for share, wanted in ((1 / 3, 100), (1.0, 300), (0.5, 150), (0.33, 99)):
        found = rare(sampler([values], share), 300)
        assert sum(found) in (wanted, wanted + 1)  # one voxel of 5832 by chance, at this seed
        assert all(found[n] for n in range(300) if due(n, share))
    assert sum(rare(sampler([values], 0.0), 300)) <= 1


def test_samples_are_centred_on_voxels_of_their_own() -> None:
    made = sampler([labels((16, 16, 16))], 1.0)
    assert len({made.sample(n).targets["out"].tobytes() for n in range(40)}) > 35
    where = {made._draw(np.random.default_rng(0), n)[1] for n in range(40)}  # turned alike
    assert len(where) > 30


def test_others_are_the_samples_without_it_and_all_depend_on_seed_and_number_alone() -> None:
    values = [labels((9, 9, 9), 1), labels((8, 9, 10), 2)]
    plain, made, again = sampler(values, 0.0), sampler(values, 0.33), sampler(values, 0.33)
    other = sampler(values, 0.33, seed=1)
    same = []
    for n in reversed(range(30)):  # in any order
        x, y = made.sample(n).images["in"], again.sample(29 - n).images["in"]
        np.testing.assert_array_equal(y, made.sample(29 - n).images["in"])
        alike = np.array_equal(x, plain.sample(n).images["in"])
        assert alike or due(n, 0.33)
        same.append(alike)
    assert sum(same) < 30
    apart = [
        np.array_equal(made.sample(n).images["in"], other.sample(n).images["in"]) for n in range(30)
    ]
    assert not all(apart)


def test_of_any_batch_in_a_row_a_third_is_centred() -> None:
    for share, batch in ((1 / 3, 6), (0.5, 4), (0.25, 4)):
        marks = [due(n, share) for n in range(600)]
        for first in range(0, 600, batch):
            assert sum(marks[first : first + batch]) == round(batch * share)


def test_images_of_one_class_each_have_no_background() -> None:
    images = ArrayVolume(np.zeros((6, 3, 3), np.uint8))
    one = spread(ArrayVolume(np.array([0, 1, 0, 0, 0, 1], np.uint8).reshape(6, 1, 1)), images)
    found = counted([Scene({"in": images}, {"out": one}, {})], ClassesTarget(2))
    assert totals(found) == {0: 36, 1: 18}


def test_labels_without_foreground_are_refused() -> None:
    with pytest.raises(VolumeError, match=r"oversample_foreground.*no voxel"):
        counted([scene(np.zeros((4, 4, 4), np.uint8))], ClassesTarget(2))


def test_counting_reads_no_more_than_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large a volume is: regions that are read stay within what statistics read at once, or a block."""
    read: list[int] = []
    whole, plain = scene(labels((9, 30, 40))), ArrayVolume._read

    def noted(self: ArrayVolume, lower: Triple, upper: Triple) -> np.ndarray:
        read.append(int(np.prod(np.subtract(upper, lower))))
        return plain(self, lower, upper)

    monkeypatch.setattr(foreground, "SIDE", 4)
    monkeypatch.setattr(ArrayVolume, "chunk", (3, 5, 40), raising=False)
    monkeypatch.setattr(moments, "PIECE", 9 * 10 * 40)
    monkeypatch.setattr(ArrayVolume, "_read", noted)
    found = counted([whole], ClassesTarget(3))
    assert 1 < len(read) <= 4
    assert max(read) <= 9 * 10 * 40
    assert totals(found) == {k: int((whole.labels["out"].read_all() == k).sum()) for k in (1, 2)}
    read.clear()
    found.draw(np.random.default_rng(0), [whole], NO_FLIPS)
    assert 0 < sum(read) <= 4**3
