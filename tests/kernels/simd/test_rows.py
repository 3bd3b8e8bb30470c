"""Copying, adding and packing rows, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from blocked_images import Blocked, Planar, blocks_of, normal, same_bits
from hypothesis import given
from hypothesis import strategies as st
from shares import examples
from znnpy_kernels.simd import rows
from znnpy_kernels.simd.lanes import LANES

LENGTHS = [1, LANES - 1, LANES, LANES + 1, 5 * LANES, 97]


def lines(length: int, seed: int = 0) -> Blocked:
    """3 x 2 rows of single floats with gaps."""
    made = Blocked(1, (3, 2, length), lanes=1)
    made.view[:] = normal(seed, *made.view.shape)
    return made


@pytest.mark.parametrize("length", LENGTHS)
def test_copy_rows_leaves_gaps_alone(length: int) -> None:
    source, target = lines(length), lines(length, 1)
    rows.copy_rows.run(
        **source.rows("source"), **target.rows("target"), planes=3, rows=2, length=length
    )
    assert same_bits(target.view, source.view)
    assert target.gaps_intact()


@pytest.mark.parametrize("length", LENGTHS)
def test_add_rows_may_run_in_place(length: int) -> None:
    first, second = lines(length), lines(length, 1)
    first.view[0, 0, 0, 0] = np.nan
    expected = first.view + second.view
    rows.add_rows.run(
        **first.rows("first"), **second.rows("second"), **first.rows("target"),
        planes=3, rows=2, length=length,
    )  # fmt: skip
    assert same_bits(first.view, expected)
    assert first.gaps_intact()


@pytest.mark.parametrize("length", LENGTHS)
def test_zero_rows(length: int) -> None:
    target = lines(length)
    rows.zero_rows.run(**target.rows("target"), planes=3, rows=2, length=length)
    assert not target.view.any()
    assert target.gaps_intact()


@pytest.mark.parametrize("length", [0, *LENGTHS])
def test_flat_copy_add_and_zero(length: int) -> None:
    a, b, c = normal(1, length + 1), normal(2, length + 1), normal(3, length + 1)
    end = c[-1]
    rows.add_flat.run(first=a, second=b, target=c, length=length)
    assert same_bits(c[:-1], (a + b)[:-1])
    rows.copy_flat.run(source=a, target=c, length=length)
    assert same_bits(c[:-1], a[:-1])
    rows.zero_flat.run(target=c, length=length)
    assert not c[:-1].any()
    assert c[-1] == end


@pytest.mark.parametrize("offset", [(0, 0, 0), (1, 2, 1), (2, 0, 3)])
def test_embed_rows_is_crop_backward_in_any_parts(offset: tuple[int, int, int]) -> None:
    small = normal(0, 2, 2, 3, 4)
    pads = [(0, 0)] + [(o, o) for o in offset]
    expected = np.pad(small, pads)
    source, target = Blocked.of(small), Blocked(2, expected.shape[1:])
    planes, height, width = expected.shape[1:]
    for z in range(planes):
        for y, count in ((0, 1), (1, height - 1)):
            rows.embed_rows.run(
                **source.rows("source"), **target.rows("target", z=z, y=y), planes=1, rows=count,
                length=width * LANES, first_plane=z, first_row=y, inner_planes=2, inner_rows=3,
                inner_length=4 * LANES, offset_z=offset[0], offset_y=offset[1],
                offset_x=offset[2] * LANES,
            )  # fmt: skip
    assert same_bits(target.planar(), expected)
    assert target.gaps_intact()


@given(channels=st.integers(1, 33), width=st.integers(1, 2 * LANES + 3))
@examples(40)
def test_pack_and_unpack_images(channels: int, width: int) -> None:
    images = Planar(normal(channels, channels, 2, 3, width))
    packed = Blocked(channels, (2, 3, width))
    back = Planar(np.zeros((channels, 2, 3, width), np.float32))
    for block, real in blocks_of(channels):
        source = images.whole("source")
        source["source"] += 4 * block * LANES * images.image
        # Read where the array lies, or where it is found at that time.
        first = source.pop("source")
        found = {"place": np.array([first - 64], np.int64), "source": 64}
        for where in ({"place": 0, "source": first}, found):
            packed.view[block] = 7.0
            rows.pack_images.run(
                **source, **where, **packed.rows("target", block),
                channels=real, planes=2, rows=3, width=width,
            )  # fmt: skip
        target = back.whole("target")
        place, target["target"] = target["target"], 4 * block * LANES * back.image
        for array in (place, 0):  # without an array nothing is written
            rows.unpack_images.run(
                **packed.rows("source", block), **target,
                place=np.array([array], np.int64),
                channels=real, planes=2, rows=3, width=width,
            )  # fmt: skip
    assert same_bits(packed.planar(), images.view)
    assert not packed.pad().any()
    assert packed.gaps_intact()
    assert same_bits(back.view, images.view)
    assert back.gaps_intact()


@given(
    first_source=st.integers(0, 20),
    first_target=st.integers(0, 20),
    channels=st.integers(1, 33),
    pad=st.booleans(),
)
@examples(60)
def test_copy_channels_writes_only_its_lanes(
    first_source: int, first_target: int, channels: int, pad: bool
) -> None:
    source = Blocked.of(normal(0, first_source + channels + 1, 2, 2, 3))
    target = Blocked.of(normal(1, first_target + channels, 2, 2, 3), pad=5.0)
    expected = target.planar()
    expected[first_target:] = source.planar()[first_source : first_source + channels]
    rows.copy_channels.run(
        **source.whole("source"), **target.whole("target"), first_source=first_source,
        first_target=first_target, channels=channels, pad=pad, planes=2, rows=2, width=3,
    )  # fmt: skip
    assert same_bits(target.planar(), expected)
    assert (target.pad() == (0.0 if pad else 5.0)).all()
    assert target.gaps_intact()
