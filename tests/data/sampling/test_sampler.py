"""Patches: right place, right target, pure in (seed, k), uniform."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shares import examples

from znnpy.data.samples.image_labels import spread
from znnpy.data.sampling.augmentation import Augmentation
from znnpy.data.sampling.sample import InputPatch, OutputPatch, Patch, stacked
from znnpy.data.sampling.sampler import Sampler
from znnpy.data.sampling.shape_descriptors import LsdTarget
from znnpy.data.sampling.targets import (
    AffinityTarget,
    BoundaryTarget,
    ClassesTarget,
    ImageTarget,
)
from znnpy.data.scene import Scene
from znnpy.data.values.normalization import normalisation
from znnpy.data.volume import ArrayVolume
from znnpy.errors import ShapeError, VolumeError

Triple = tuple[int, int, int]


def scene(shape: Triple = (7, 8, 9), first: int = 0, mask: np.ndarray | None = None) -> Scene:
    """Every voxel of image and labels holds its own number, so patches tell where they lie."""
    numbers = np.arange(first, first + np.prod(shape)).reshape(shape)
    masks = {} if mask is None else {"out": ArrayVolume(mask)}
    return Scene({"in": ArrayVolume(numbers)}, {"out": ArrayVolume(numbers + 1)}, masks)


def sampler(scenes: list[Scene], given: Triple, wanted: Triple, **options: object) -> Sampler:
    target = options.pop("target", ImageTarget())
    output = OutputPatch(
        wanted,
        target,  # type: ignore[arg-type]
        options.pop("offset", None),  # type: ignore[arg-type]
        options.pop("stride", (1, 1, 1)),  # type: ignore[arg-type]
    )
    return Sampler(
        scenes,
        {"in": InputPatch(given)},
        {"out": output},
        normalise="none",
        **options,  # type: ignore[arg-type]
    )


def same(a: Patch, b: Patch) -> bool:
    pairs = [(a.images, b.images), (a.targets, b.targets), (a.weights, b.weights)]
    return all(np.array_equal(x[n], y[n]) for x, y in pairs for n in x)


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 10**6),
    st.tuples(*[st.integers(2, 6)] * 3),
    st.tuples(*[st.integers(0, 2)] * 3),
    st.booleans(),
)
@examples(60)
def test_output_lies_where_asked(
    seed: int, index: int, given: Triple, offset: Triple, mirror: bool
) -> None:
    """Under any turn the target is the image's own voxels, at the offset within the input patch."""
    wanted = tuple(n - min(o, n - 1) for n, o in zip(given, offset, strict=True))
    offset = tuple(n - w for n, w in zip(given, wanted, strict=True))
    made = sampler(
        [scene(), scene((6, 6, 6), 1000)],
        given,
        wanted,
        offset=offset,
        augmentation=Augmentation(),
        mirror=mirror,
        seed=seed,
    )
    patch = made.sample(index)
    z, y, x = (slice(o, o + w) for o, w in zip(offset, wanted, strict=True))
    assert patch.images["in"].shape == (1, *given)
    assert np.array_equal(patch.images["in"][:, z, y, x] + 1, patch.targets["out"])
    assert patch.images["in"].dtype == patch.targets["out"].dtype == np.float32
    assert patch.weights["out"].min() == 1


def test_centred_strided_output() -> None:
    made = sampler([scene()], (5, 6, 7), (2, 2, 3), stride=(2, 3, 1), augmentation=Augmentation())
    for index in range(20):
        patch = made.sample(index)
        inner = patch.images["in"][:, 1:4:2, 1:5:3, 2:5]
        assert np.array_equal(inner + 1, patch.targets["out"])


def test_sample_is_pure() -> None:
    one = sampler([scene()], (5, 5, 5), (3, 3, 3), augmentation=Augmentation(), seed=7)
    two = sampler([scene()], (5, 5, 5), (3, 3, 3), augmentation=Augmentation(), seed=7)
    other = sampler([scene()], (5, 5, 5), (3, 3, 3), augmentation=Augmentation(), seed=8)
    forwards = [one.sample(k) for k in range(20)]
    backwards = [two.sample(k) for k in reversed(range(20))][::-1]
    assert all(same(a, b) for a, b in zip(forwards, backwards, strict=True))
    assert not all(same(a, other.sample(k)) for k, a in enumerate(forwards))
    assert len({a.images["in"].tobytes() for a in forwards}) > 15


def test_positions_are_uniform_over_all_volumes() -> None:
    """12 + 3 positions, 3000 draws: each is expected 200 times, standard deviation 14."""
    made = sampler([scene((4, 3, 5)), scene((3, 1, 3), 1000)], (2, 1, 3), (1, 1, 1))
    assert made.positions == 3 * 3 * 3 + 2
    made = sampler([scene((2, 4, 5)), scene((4, 1, 3), 1000)], (2, 1, 3), (1, 1, 1))
    assert made.positions == 12 + 3
    counts = Counter(float(made.sample(k).images["in"][0, 0, 0, 0]) for k in range(3000))
    assert len(counts) == 15
    assert min(counts.values()) > 120
    assert max(counts.values()) < 280


def test_every_mirrored_position_has_its_output_inside() -> None:
    made = sampler([scene((3, 3, 3))], (5, 5, 5), (1, 1, 1), mirror=True)
    assert made.positions == 27
    centres = {float(made.sample(k).targets["out"][0, 0, 0, 0]) for k in range(400)}
    assert centres == set(range(1, 28))
    patch = made.sample(0)
    block = patch.images["in"][0]
    assert np.array_equal(block[2, 2, 2] + 1, patch.targets["out"][0, 0, 0, 0])


@given(st.integers(0, 10**6), st.booleans())
@examples(40)
def test_target_is_that_of_the_whole_turned_volume(index: int, affinity: bool) -> None:
    """A patch's target equals the one made from the whole volume: its border misses nothing."""
    random = np.random.default_rng(3)
    labels = random.integers(0, 3, (6, 6, 6))
    mask = random.integers(0, 4, (6, 6, 6)) > 0
    target = AffinityTarget() if affinity else BoundaryTarget(2)
    volumes = Scene(
        {"in": ArrayVolume(np.arange(216).reshape(6, 6, 6))},
        {"out": ArrayVolume(labels)},
        {"out": ArrayVolume(mask)},
    )
    made = sampler([volumes], (4, 4, 4), (4, 4, 4), target=target, augmentation=Augmentation())
    patch = made.sample(index)
    where = patch.images["in"][0].astype(int)
    turned = _turn_that_makes(where)
    value, weight = target.compute(turned(labels[None]), turned(mask))
    corner = np.argwhere(turned(np.arange(216).reshape(6, 6, 6)) == where[0, 0, 0])[0]
    z, y, x = (slice(c, c + 4) for c in corner)
    assert np.array_equal(patch.targets["out"], value[:, z, y, x])
    assert np.array_equal(patch.weights["out"], weight[:, z, y, x])


def _turn_that_makes(where: np.ndarray):  # type: ignore[no-untyped-def]
    """The flip and swap that was drawn, read off the voxel numbers of a 6 x 6 x 6 volume."""
    steps = [int(where[1, 0, 0] - where[0, 0, 0]), int(where[0, 1, 0] - where[0, 0, 0])]
    steps.append(int(where[0, 0, 1] - where[0, 0, 0]))
    order = [{36: 0, 6: 1, 1: 2}[abs(step)] for step in steps]
    flipped = [origin for origin, step in zip(order, steps, strict=True) if step < 0]

    def turn(array: np.ndarray) -> np.ndarray:
        lead = array.ndim - 3
        array = np.flip(array, tuple(lead + axis for axis in flipped))
        return array.transpose(*range(lead), *(lead + axis for axis in order))

    return turn


def test_mask_and_patches_without_weight() -> None:
    mask = np.zeros((7, 8, 9), np.uint8)
    mask[3, 4, 5] = 1
    made = sampler([scene(mask=mask)], (3, 3, 3), (1, 1, 1))
    for index in range(5):
        patch = made.sample(index)
        assert patch.weights["out"].tolist() == [[[[1.0]]]]
        assert patch.targets["out"][0, 0, 0, 0] == 3 * 72 + 4 * 9 + 5 + 1
    mask[...] = 0
    with pytest.raises(VolumeError, match="no voxel that counts"):
        sampler([scene(mask=mask)], (3, 3, 3), (1, 1, 1)).sample(0)


def test_labels_smaller_than_the_image() -> None:
    numbers = np.arange(7 * 8 * 9).reshape(7, 8, 9)
    image = ArrayVolume(numbers, resolution=(10, 5, 5))
    inner = numbers[2:6, 1:5, 3:8] + 1
    labels = ArrayVolume(inner, "labels", (10, 5, 5), offset=(20, 5, 15))
    mask = ArrayVolume(np.ones((3, 3, 3)), "mask", (10, 5, 5), offset=(30, 10, 20))
    made = sampler([Scene({"in": image}, {"out": labels})], (5, 5, 5), (3, 3, 3))
    assert made.positions == 2 * 2 * 3
    for index in range(10):
        patch = made.sample(index)
        assert np.array_equal(patch.images["in"][:, 1:4, 1:4, 1:4] + 1, patch.targets["out"])
    masked = sampler([Scene({"in": image}, {"out": labels}, {"out": mask})], (5, 5, 5), (3, 3, 3))
    for index in range(10):
        patch = masked.sample(index)
        where = patch.images["in"][0, 1:4, 1:4, 1:4]
        z, y, x = np.unravel_index(where.astype(int), numbers.shape)
        expected = (z >= 3) & (z < 6) & (y >= 2) & (y < 5) & (x >= 4) & (x < 7)
        assert np.array_equal(patch.weights["out"][0], expected)


@pytest.mark.parametrize("mode", ["patch", "volume"])
def test_rebalance(mode: str) -> None:
    labels = np.zeros((6, 6, 6), np.int64)
    labels[:, :, :2] = 1
    volumes = [
        Scene({"in": ArrayVolume(image)}, {"out": ArrayVolume(ids)})
        for image, ids in ((labels, labels), (labels + 5, labels * 0))
    ]
    made = sampler(volumes, (2, 2, 4), (2, 2, 4), rebalance=mode)
    for index in range(20):
        patch = made.sample(index)
        positive = patch.targets["out"] > 0.5
        if mode == "volume" and patch.images["in"].max() < 5:
            expected = np.where(positive, 1.5, 0.75)
        elif positive.any():
            number = np.count_nonzero(positive)
            expected = np.where(positive, 8 / number, 8 / (16 - number))
        else:
            expected = np.ones(positive.shape)
        assert np.allclose(patch.weights["out"], expected)


@pytest.mark.parametrize("mode", ["patch", "volume"])
def test_rebalance_of_classes(mode: str) -> None:
    """Losses of classes read one weight a voxel."""
    labels = np.random.default_rng(0).choice(3, (4, 6, 6), p=[0.7, 0.2, 0.1])
    scene = Scene({"in": ArrayVolume(labels)}, {"out": ArrayVolume(labels)})
    output = {"out": OutputPatch((4, 6, 6), ClassesTarget(3))}
    made = Sampler([scene], {"in": InputPatch((4, 6, 6))}, output, rebalance=mode)
    patch = made.sample(0)
    target, weight = patch.targets["out"], patch.weights["out"]
    assert (weight == weight[0]).all()
    assert (weight * target).sum((1, 2, 3)) == pytest.approx([labels.size / 3] * 3, rel=1e-5)


@pytest.mark.parametrize("mode", ["patch", "volume"])
def test_shape_descriptors_have_no_classes_to_rebalance(mode: str) -> None:
    labels = np.random.default_rng(0).choice([0, 3], (4, 6, 6), p=[0.8, 0.2])
    scene = Scene({"in": ArrayVolume(labels)}, {"out": ArrayVolume(labels)})
    for target, alike in ((LsdTarget((1, 1, 1)), True), (BoundaryTarget(0), False)):
        output = {"out": OutputPatch((4, 6, 6), target)}
        made = Sampler([scene], {"in": InputPatch((4, 6, 6))}, output, rebalance=mode)
        assert (len(np.unique(made.sample(0).weights["out"])) == 1) == alike


def test_images_are_normalised_per_volume() -> None:
    volumes = [scene(), scene((6, 6, 6), 1000)]
    output = {"out": OutputPatch((1, 1, 1), ImageTarget())}
    made = Sampler(volumes, {"in": InputPatch((1, 1, 1))}, output)
    for index in range(20):
        patch = made.sample(index)
        raw = patch.targets["out"] - 1
        home = volumes[0] if raw.max() < 504 else volumes[1]
        expected = normalisation(home.images["in"]).apply(raw)
        assert np.allclose(patch.images["in"], expected, atol=1e-5)


def test_several_inputs_and_outputs() -> None:
    numbers = np.arange(512).reshape(8, 8, 8)
    volumes = Scene(
        {"fine": ArrayVolume(numbers), "wide": ArrayVolume(numbers * 2)},
        {"edge": ArrayVolume(numbers + 1), "core": ArrayVolume(numbers + 1)},
    )
    made = Sampler(
        [volumes],
        {"fine": InputPatch((4, 4, 4)), "wide": InputPatch((6, 6, 6))},
        {
            "edge": OutputPatch((2, 2, 2), ImageTarget()),
            "core": OutputPatch((3, 1, 1), ImageTarget(), offset=(0, 1, 2)),
        },
        augmentation=Augmentation("zyx", "none"),
        normalise="none",
    )
    assert made.positions == 27
    for index in range(20):
        patch = made.sample(index)
        fine = patch.images["fine"]
        assert np.array_equal(fine * 2, patch.images["wide"][:, 1:5, 1:5, 1:5])
        assert np.array_equal(fine[:, 1:3, 1:3, 1:3] + 1, patch.targets["edge"])
        assert np.array_equal(fine[:, 0:3, 1:2, 2:3] + 1, patch.targets["core"])


def test_positions_count_by_the_output_that_counts_most() -> None:
    """Patches whose outputs all show nothing are passed over; one that shows something is enough."""
    image, labels = ArrayVolume(np.zeros((4, 4, 4))), ArrayVolume(np.ones((4, 4, 4), np.uint8))
    none, half = np.zeros((4, 4, 4), np.uint8), np.ones((4, 4, 4), np.uint8)
    half[:2] = 0
    made = Sampler(
        [
            Scene(
                {"in": image},
                {"a": labels, "b": labels},
                {"a": ArrayVolume(none), "b": ArrayVolume(half)},
            )
        ],
        {"in": InputPatch((4, 4, 4))},
        {name: OutputPatch((4, 4, 4), ImageTarget()) for name in ("a", "b")},
        normalise="none",
    )
    assert made.counted(0, ((0, 0, 0), (1, 1, 1))) == 0.5


def test_labels_that_lie_elsewhere_are_told() -> None:
    away = ArrayVolume(np.ones((9, 9, 9), np.uint8), "gt", offset=(200.0, 0.0, 0.0))
    far = Scene({"in": ArrayVolume(np.zeros((9, 9, 9)), "raw")}, {"out": away})
    for mirror in (False, True):  # mirrored again and again, the image would reach there
        words = r"its labels of \(9, 9, 9\) from voxel \(200, 0, 0\) on.*smaller network$"
        with pytest.raises(ShapeError, match=words):
            sampler([far], (3, 3, 3), (1, 1, 1), mirror=mirror)


def test_mirrored_borders_are_advised_where_labels_are_large_enough() -> None:
    with pytest.raises(ShapeError, match=r"or set data\.border: mirror"):
        sampler([scene()], (9, 9, 9), (3, 3, 3))
    with pytest.raises(ShapeError) as found:
        sampler([scene()], (9, 9, 9), (9, 9, 9))
    assert "mirror" not in str(found.value)


def test_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(7, 8, 9\).*\(8, 3, 3\)"):
        sampler([scene(), scene((20, 20, 20))], (8, 3, 3), (1, 1, 1))
    with pytest.raises(VolumeError, match="no volume"):
        sampler([], (3, 3, 3), (1, 1, 1))
    floats = Scene(
        {"in": ArrayVolume(np.zeros((3, 3, 3)))}, {"out": ArrayVolume(np.ones((3, 3, 3)))}
    )
    with pytest.raises(VolumeError, match="integer labels"):
        sampler([floats], (3, 3, 3), (1, 1, 1), target=AffinityTarget())
    with pytest.raises(VolumeError, match="comes without labels for output 'other'; given: out"):
        Sampler(
            [scene()],
            {"in": InputPatch((3, 3, 3))},
            {"other": OutputPatch((1, 1, 1), ImageTarget())},
        )
    with pytest.raises(ValueError, match="seed"):
        sampler([scene()], (3, 3, 3), (1, 1, 1), seed=-1)


def middles(made: Sampler, numbers: range) -> list[int]:
    return [int(made.sample(k).targets["out"].ravel()[0]) for k in numbers]


@pytest.mark.parametrize("augmentation", [None, Augmentation()])
def test_shuffled_takes_each_position_once_an_epoch(augmentation: Augmentation | None) -> None:
    scenes = [scene((4, 5, 3)), scene((3, 3, 3), 1000)]
    options = {"augmentation": augmentation, "order": "shuffled", "seed": 5}
    made = sampler(scenes, (3, 3, 3), (1, 1, 1), **options)
    count = made.positions
    assert count == 2 * 3 * 1 + 1
    epochs = [middles(made, range(e * count, (e + 1) * count)) for e in range(4)]
    assert all(len(set(epoch)) == count for epoch in epochs)
    assert {tuple(sorted(epoch)) for epoch in epochs} == {tuple(sorted(epochs[0]))}
    assert len(set(map(tuple, epochs))) > 1
    again = sampler(scenes, (3, 3, 3), (1, 1, 1), **options)
    assert middles(again, range(count, 2 * count)) == epochs[1]


def test_shuffled_replaces_positions_where_nothing_counts() -> None:
    mask = np.zeros((7, 8, 9), np.uint8)
    mask[3] = 1
    made = sampler([scene(mask=mask)], (1, 8, 9), (1, 8, 9), order="shuffled")
    assert {int(made.sample(k).targets["out"].min()) for k in range(7)} == {3 * 72 + 1}


def test_shuffled_refuses_places_that_flips_change() -> None:
    """Labels of a part of the image, and outputs off the middle of patches."""
    labels = ArrayVolume(np.zeros((7, 8, 4), np.uint8), offset=(0.0, 0.0, 5.0))
    part = Scene({"in": ArrayVolume(np.zeros((7, 8, 9), np.uint8))}, {"out": labels})
    options = {"offset": (0, 0, 3), "order": "shuffled", "augmentation": Augmentation("x", "none")}
    with pytest.raises(VolumeError, match="shuffled takes each position once, but flipped patches"):
        sampler([part], (1, 1, 4), (1, 1, 1), **options)


def sliced(seed: int = 3, odd: float | None = None, **options: object) -> Sampler:
    """Single slices: two lists of 5 and 4 images of two channels, a class for each; a voxel of each list is `odd`."""
    rng = np.random.default_rng(0)
    scenes = []
    for count in (5, 4):
        array = rng.integers(0, 255, (2, count, 6, 7)).astype(np.float32 if odd else np.uint8)
        array[1, 2, 3, 3] = odd or 0
        images = ArrayVolume(array)
        labels = ArrayVolume(rng.integers(0, 3, (1, count, 1, 1)).astype(np.uint8))
        scenes.append(Scene({"in": images}, {"out": spread(labels, images)}))
    return Sampler(
        scenes,
        {"in": InputPatch((1, 5, 6))},
        {"out": OutputPatch((1, 2, 2), ClassesTarget(3), stride=(1, 2, 2))},
        order="shuffled",
        seed=seed,
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"normalise": "unit"}, {"mirror": True}, {"odd": np.nan, "replace": True}],
)
def test_slices_made_at_once_are_those_made_one_by_one(options: dict[str, object]) -> None:
    made = sliced(**options)
    assert made._slices
    numbers = [7, 3, 4, *range(made.positions, made.positions + 9)]
    assert same(made.samples(numbers), stacked([made.sample(k) for k in numbers]))
    turned = sliced(**options, augmentation=Augmentation("x", "none"))
    assert not turned._slices
    assert same(turned.samples(numbers), stacked([turned.sample(k) for k in numbers]))


@pytest.mark.parametrize("mode", ["mean_std", "none"])
def test_a_constant_image_is_told(mode: str) -> None:
    image, labels = np.full((2, 4, 4, 4), 7, np.uint8), np.arange(64).reshape(4, 4, 4)
    image[0, 1, 2, 3] = 9
    given = Scene({"in": ArrayVolume(image, "a.h5:raw")}, {"out": ArrayVolume(labels)})
    with pytest.warns(
        UserWarning, match="a.h5:raw: all values of channel 1 are 7: there is nothing"
    ):
        Sampler(
            [given],
            {"in": InputPatch((2, 2, 2))},
            {"out": OutputPatch((2, 2, 2), ImageTarget())},
            normalise=mode,
        )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "channels", "value", "alpha"),
    [("u1", 4, 255, True), ("u2", 2, 65535, True), ("f4", 4, 1, True), ("u1", 4, 254, False), ("u1", 3, 255, False)],
)  # fmt: skip
def test_alpha_that_is_opaque_everywhere_is_told_as_such(
    dtype: str, channels: int, value: int, alpha: bool
) -> None:
    image = np.random.default_rng(0).integers(0, 2, (channels, 4, 4, 4)).astype(dtype)
    image[-1] = value
    labels = np.arange(64).reshape(4, 4, 4)
    given = Scene({"in": ArrayVolume(image, "a.png")}, {"out": ArrayVolume(labels)})
    ports = {"in": InputPatch((2, 2, 2))}, {"out": OutputPatch((2, 2, 2), ImageTarget())}
    how = "as of alpha that is opaque" if alpha else "nothing to see in it"
    with pytest.warns(UserWarning, match=f"all values of channel {channels - 1} are .*{how}"):
        Sampler([given], *ports)


def test_values_that_float32_does_not_tell_apart_are_told() -> None:
    """As of numbers with a large offset, whose least was not subtracted."""
    image = 2**40 + np.arange(64, dtype=np.uint64).reshape(1, 4, 4, 4)
    labels = np.arange(64).reshape(4, 4, 4)
    given = Scene({"in": ArrayVolume(image, "a.h5")}, {"out": ArrayVolume(labels)})
    ports = {"in": InputPatch((2, 2, 2))}, {"out": OutputPatch((2, 2, 2), ImageTarget())}
    with pytest.warns(UserWarning, match=rf"from {2**40} to {2**40 + 63}, one number in float32"):
        Sampler([given], *ports)
