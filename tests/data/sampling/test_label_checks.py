"""Labels are read with masks; those that a loss cannot take are refused with range, place and the way out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.data.sampling.label_checks import check_labels, read_labelled, read_padded, read_taken
from znnpy.data.sampling.sample import InputPatch, OutputPatch
from znnpy.data.sampling.sampler import Sampler
from znnpy.data.sampling.targets import (
    BoundaryTarget,
    ClassesTarget,
    ImageTarget,
    MaskTarget,
    Target,
)
from znnpy.data.scene import Scene
from znnpy.data.values import moments
from znnpy.data.volume import ArrayVolume
from znnpy.errors import VolumeError
from znnpy.learning.readings import CLASSES, LOGITS, VALUES

BINOMIAL, SQUARE, SOFTMAX = (
    reading.taken(loss)
    for loss, reading in (
        ("binomial_cross_entropy", LOGITS),
        ("square", VALUES),
        ("softmax", CLASSES),
    )
)


class Counted(ArrayVolume):
    """A volume that counts how often it is read."""

    reads = 0

    def read(self, *args: Any, **kwargs: Any) -> Any:
        """As every volume."""
        self.reads += 1
        return super().read(*args, **kwargs)


def volume(*values: float, dtype: type = np.float32) -> ArrayVolume:
    return ArrayVolume(np.array(values, dtype).reshape(1, 1, 1, -1), "labels.h5:a")


REFUSED: list[tuple[Target, ArrayVolume, str]] = [
    (ImageTarget(1, BINOMIAL), volume(0, 255, 0, dtype=np.uint8),
     r"labels.h5:a: values are from 0 to 255, and 1 of them fit no target, the first 255 at "
     r"\(z, y, x\) = \(0, 0, 1\), channel 0; .* takes values from 0 to 1. .*kind: mask.*scale: 0.00392157"),
    (ImageTarget(1, BINOMIAL), volume(0.5, -0.25), "from -0.25 to 0.5.*first -0.25"),
    (ImageTarget(1, BINOMIAL), volume(0, 1, np.nan), "from 0 to 1, and 1 .*first nan"),
    (ImageTarget(1, BINOMIAL), volume(np.nan), "values are not finite"),
    (ImageTarget(0.01, BINOMIAL), volume(0, 101, dtype=np.uint16), "times 0.01, binomial"),
    (ImageTarget(-1, BINOMIAL), volume(0, 1), "first 1.0"),
    (ImageTarget(1, SQUARE), volume(0, np.inf), "square takes finite numbers.*by a mask"),
    (ImageTarget(1, SQUARE), volume(0, 1e300, dtype=np.float64), r"first 1e\+300"),
    (ImageTarget(10, SQUARE), volume(0, 1e38), r"times 10, square"),
    (ImageTarget(1, SOFTMAX), volume(0.5, 1), r"first 0.5.*1 in all"),
    (MaskTarget(1, BINOMIAL), volume(0, np.nan), "a mask takes finite numbers"),
    (ClassesTarget(3), volume(0, 1, 3, dtype=np.uint8), "from 0 to 3, .*first 3 at.* from 0 to 2"),
    (ClassesTarget(3), volume(0, -1, dtype=np.int64), "from -1 to 0"),
    (ClassesTarget(3), volume(0, 0.5), "first 0.5.*3 output channels"),
    (ClassesTarget(3), volume(0, np.nan), "first nan"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "labels", "words"), REFUSED)
def test_what_has_no_target_is_refused_unless_a_mask_leaves_it_out(
    target: Target, labels: ArrayVolume, words: str
) -> None:
    end = labels.extent
    with pytest.raises(VolumeError, match=words):
        check_labels(target, labels, None)
    with pytest.raises(VolumeError, match=words):
        read_taken(target, labels, None, (0, 0, 0), end)
    good = ~target.wrong(labels.array)
    mask = ArrayVolume(good.astype(np.uint8))
    check_labels(target, labels, mask)
    value, weight = target.compute(*read_taken(target, labels, mask, (0, -1, 0), end))
    assert np.isfinite(value).all()
    assert weight.sum(axis=(1, 2, 3)).tolist() == [good.sum()] * len(weight)


@pytest.mark.parametrize(
    "target", [ImageTarget(1, BINOMIAL), MaskTarget(1, BINOMIAL), ClassesTarget(2)]
)
@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int32, np.float16, np.float64])
def test_what_has_a_target_is_taken(target: Target, dtype: type) -> None:
    check_labels(target, volume(0, 1, 1, dtype=dtype), None)


@pytest.mark.parametrize(
    ("target", "labels"),
    [
        (ClassesTarget(2, ignore=255), volume(0, 255, 255, dtype=np.uint8)),
        (ImageTarget(1, BINOMIAL, ignore=255), volume(0, 255, dtype=np.float32)),
        (ImageTarget(1, SQUARE, ignore=255), volume(0, 255, dtype=np.uint8)),
    ],
)
def test_labels_of_which_one_value_counts_are_doubted(target: Target, labels: ArrayVolume) -> None:
    with pytest.warns(
        UserWarning, match=r"labels.h5:a: all labels that count are 0, .* 255.*nothing"
    ):
        check_labels(target, labels, None)


@pytest.mark.parametrize(
    ("target", "labels"),
    [
        (ClassesTarget(2), volume(1, 1, dtype=np.uint8)),
        (BoundaryTarget(), volume(1, 1, dtype=np.uint64)),
        (MaskTarget(1, BINOMIAL), volume(1, 1, dtype=np.bool_)),
        (ImageTarget(1, SQUARE), volume(1, 1)),
    ],
)
def test_labels_of_one_value_are_doubted_whatever_they_are_for(
    target: Target, labels: ArrayVolume
) -> None:
    with pytest.warns(UserWarning, match=r"labels.h5:a: all labels that count are 1: they tell"):
        check_labels(target, labels, None)


def test_labels_of_which_a_mask_leaves_one_value_are_doubted() -> None:
    labels = volume(3, 3, 4, dtype=np.uint8)
    with pytest.warns(UserWarning, match="all labels that count are 3: they tell"):
        check_labels(BoundaryTarget(), labels, volume(1, 1, 0, dtype=np.uint8))


def test_object_numbers_are_read_until_a_second_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "SLAB", 1)
    labels = Counted(np.arange(20, dtype=np.uint64).reshape(1, 20, 1, 1) // 3)
    check_labels(BoundaryTarget(), labels, None)
    assert labels.reads == 1 + 4  # a part for marks


@pytest.mark.parametrize(
    ("target", "labels"),
    [
        (ClassesTarget(2, ignore=255), volume(0, 1, 255, dtype=np.uint8)),
        (ClassesTarget(2), volume(0, 1, dtype=np.uint8)),
        (ClassesTarget(2, ignore=255), volume(255, 255, dtype=np.uint8)),  # refused when drawn
    ],
)
def test_other_labels_are_not_doubted(
    target: Target, labels: ArrayVolume, recwarn: pytest.WarningsRecorder
) -> None:
    check_labels(target, labels, None)
    assert not recwarn.list


def test_slabs_of_a_large_volume_tell_nothing_of_the_rest(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(moments, "SLAB", 1)
    monkeypatch.setattr(moments, "SAMPLED", 2)
    values = np.zeros((9, 1, 2), np.uint8)
    values[:, :, 1] = 255
    check_labels(ClassesTarget(2, ignore=255), ArrayVolume(values), None)
    assert not recwarn.list


def test_masks_of_classes_sum_to_one() -> None:
    one = np.array([[255, 0], [0, 255]], np.uint8).reshape(2, 1, 1, 2)
    check_labels(MaskTarget(1, SOFTMAX), ArrayVolume(one), None)
    with pytest.raises(VolumeError, match="shares"):
        check_labels(MaskTarget(1, SOFTMAX), ArrayVolume(np.ones_like(one)), None)


def test_channels_must_be_those_of_the_output() -> None:
    with pytest.raises(
        VolumeError,
        match=r"holds 1 channel\(s\); this target needs 2, one for each output channel .*softmax",
    ):
        check_labels(ImageTarget(1, BINOMIAL, 2), volume(0, 1), None)


def test_a_place_counts_from_the_volume_in_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.zeros((1, 9, 8, 7), np.uint8)
    array[0, 6, 5, 4] = 2
    array[0, 8, 7, 6] = 9
    monkeypatch.setattr(moments, "SLAB", 100)
    with pytest.raises(VolumeError, match=r"from 0 to 9, and 2 .* 2 at \(z, y, x\) = \(6, 5, 4\)"):
        check_labels(ImageTarget(1, BINOMIAL), ArrayVolume(array), None)
    with pytest.raises(VolumeError, match=r"9 at \(z, y, x\) = \(8, 7, 6\)"):
        read_taken(ImageTarget(1, BINOMIAL), ArrayVolume(array), None, (7, 6, 5), (9, 8, 7))


def test_what_no_slab_showed_is_found_when_it_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.zeros((1, 9, 1, 1), np.uint8)
    array[0, 4] = 255
    monkeypatch.setattr(moments, "SLAB", 1)
    monkeypatch.setattr(moments, "SAMPLED", 2)
    scene = Scene({"in": ArrayVolume(array)}, {"out": ArrayVolume(array, "out.tif")})
    output = OutputPatch((1, 1, 1), ImageTarget(1, BINOMIAL))
    sampler = Sampler([scene], {"in": InputPatch((1, 1, 1))}, {"out": output})
    with pytest.raises(VolumeError, match=r"out.tif: .*255 at \(z, y, x\) = \(4, 0, 0\)"):
        _draw_all(sampler, 100)


def _draw_all(sampler: Sampler, count: int) -> None:
    for index in range(count):
        sampler.sample(index)


def test_in_batches_of_slices_the_place_is_that_of_the_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    array = np.zeros((1, 9, 1, 1), np.uint8)
    array[0, 4] = 255
    monkeypatch.setattr(moments, "SLAB", 1)
    monkeypatch.setattr(moments, "SAMPLED", 2)
    scene = Scene({"in": ArrayVolume(array)}, {"out": ArrayVolume(array, "out.tif")})
    output = OutputPatch((1, 1, 1), ImageTarget(1, BINOMIAL))
    sampler = Sampler([scene], {"in": InputPatch((1, 1, 1))}, {"out": output}, order="shuffled")
    with pytest.raises(VolumeError, match=r"out.tif: .*255 at \(z, y, x\) = \(4, 0, 0\)"):
        sampler.samples(range(9))


CORNERS = st.tuples(*[st.integers(-6, 8)] * 3)
SIZES = st.tuples(*[st.integers(1, 9)] * 3)


@given(CORNERS, SIZES)
def test_padded_like_numpy(lower: tuple[int, int, int], sizes: tuple[int, int, int]) -> None:
    array = np.arange(1, 2 * 3 * 4 * 5 + 1).reshape(2, 3, 4, 5)
    upper = tuple(a + n for a, n in zip(lower, sizes, strict=True))
    values, inside = read_padded(ArrayVolume(array), lower, upper)  # type: ignore[arg-type]
    wide = np.pad(array, [(0, 0), (20, 20), (20, 20), (20, 20)])
    z, y, x = (slice(a + 20, b + 20) for a, b in zip(lower, upper, strict=True))
    assert np.array_equal(values, wide[:, z, y, x])
    assert np.array_equal(inside, values[0] > 0)


def test_mask_of_two_channels_that_lies_elsewhere() -> None:
    labels = ArrayVolume(np.arange(1, 5).reshape(1, 1, 4))
    mask = ArrayVolume(np.array([[1, 1, 0], [5, 0, 1]]).reshape(2, 1, 1, 3))
    values, known = read_labelled(labels, mask, (0, 0, 0), (1, 1, 4), (0, 0, -1))
    assert values.ravel().tolist() == [1, 2, 3, 4]
    assert known.ravel().tolist() == [False, True, False, False]


@pytest.mark.parametrize("values", [(-1, 1), (-0.5, 0.25), (0.1, 0.9)])
@pytest.mark.parametrize("dtype", [np.int8, np.float32])
def test_masks_without_any_zero_are_told(values: tuple[float, float], dtype: type) -> None:
    found = volume(*np.sign(values), *np.multiply(values, 20), dtype=dtype)
    with pytest.warns(UserWarning, match="none is 0: they tell nothing apart"):
        check_labels(MaskTarget(1, BINOMIAL), found, None)


def test_masks_with_one_zero_are_not_told(recwarn: pytest.WarningsRecorder) -> None:
    for dtype in (np.int8, np.float32):
        check_labels(MaskTarget(1, BINOMIAL), volume(-1, 0, 1, dtype=dtype), None)
    assert not recwarn.list


@pytest.mark.parametrize(
    ("mark", "dtype", "told"),
    [(-1, "i8", True), (-1, "i2", True), (2**64 - 1, "u8", True), (255, "u1", False), (2**40, "i8", False)],
)  # fmt: skip
def test_marks_that_would_be_objects_are_told(
    mark: int, dtype: str, told: bool, recwarn: pytest.WarningsRecorder
) -> None:
    ids = np.arange(64, dtype=dtype).reshape(4, 4, 4)
    ids[1, 2, 3] = mark
    labels, mask = ArrayVolume(ids, "a.h5:labels"), np.ones(ids.shape, np.uint8)
    check_labels(BoundaryTarget(), labels, ArrayVolume(mask))
    said = [str(it.message) for it in recwarn]
    assert [f"some labels are {mark}, which counts as one object" in it for it in said] == [
        True
    ] * told
    mask[1, 2, 3] = 0
    recwarn.clear()
    check_labels(BoundaryTarget(), labels, ArrayVolume(mask))
    assert not recwarn
