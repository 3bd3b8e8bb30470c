"""Dropout: rate, scale, repeatability, independence of parts and of LANES."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, blocks_of, normal, same_bits
from znnpy_kernels.layers.dropout import dropout
from znnpy_kernels.simd.lanes import LANES

WORD = (1 << 64) - 1


def dropped(x: Any, keep: float, gap: int = 2, parts: bool = False, **chosen: int) -> Any:
    source, target = Blocked.of(x, gap), Blocked(x.shape[0], x.shape[1:])
    words = {"seed": 5, "edge": 0, "iteration": 3, "image": 0} | chosen
    # By address.
    words |= {name: np.array([words[name]]) for name in ("seed", "iteration")}
    planes, rows, width = x.shape[1:]
    pieces = [(z, y) for z in range(planes) for y in range(rows)] if parts else [(0, 0)]
    for block, _ in blocks_of(x.shape[0]):
        for z, y in pieces:
            dropout.run(
                **source.rows("source", block, z, y), **target.rows("target", block, z, y),
                **words, first_channel=block * LANES, first_plane=z,
                first_row=y, planes=1 if parts else planes, rows=1 if parts else rows,
                width=width, keep=keep,
            )  # fmt: skip
    assert not target.pad().any()
    assert target.gaps_intact()
    return target.planar()


def mix64(state: int, word: int) -> int:
    h = ((state ^ (word & WORD)) + 0x9E3779B97F4A7C15) & WORD
    h = ((h ^ h >> 30) * 0xBF58476D1CE4E5B9) & WORD
    h = ((h ^ h >> 27) * 0x94D049BB133111EB) & WORD
    return h ^ h >> 31


def kept(keep: float, channel: int, *place: int) -> bool:
    """The definition in plain Python; place = seed, iteration, image, z, y, x."""
    state = 0
    for word in place:
        state = mix64(state, word)
    h = (channel * 0x9E3779B1 + state) & 0xFFFFFFFF
    h ^= h >> 16
    h = (h * 0x7FEB352D + (state >> 32)) & 0xFFFFFFFF
    h ^= h >> 15
    h = (h * 0x846CA68B) & 0xFFFFFFFF
    return (h ^ h >> 16) >> 8 < int(keep * 2**24)


def test_follows_its_definition() -> None:
    x = normal(0, LANES + 3, 2, 2, 5)
    y = dropped(x, 0.4, seed=-7, edge=25, iteration=11, image=2)
    for channel, z, y_, column in np.ndindex(*x.shape):
        expected = kept(0.4, channel, -7 ^ 25, 11, 2, z, y_, column)
        scale = np.float32(1 / 0.4) if expected else np.float32(0)
        assert y[channel, z, y_, column] == x[channel, z, y_, column] * scale


def test_bitwise_the_same_in_parts_and_with_other_gaps() -> None:
    x = normal(0, LANES + 3, 3, 4, 5)
    assert same_bits(dropped(x, 0.5), dropped(x, 0.5, gap=0, parts=True))


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
def test_rate_is_even_along_every_axis(keep: float) -> None:
    ones = np.ones((20, 10, 20, 50), np.float32)
    on = dropped(ones, keep) > 0
    assert abs(on.mean() - keep) < 4 * np.sqrt(keep * (1 - keep) / on.size)
    for axis in range(4):
        rates = on.mean(tuple(a for a in range(4) if a != axis))
        sigma = np.sqrt(keep * (1 - keep) * on.shape[axis] / on.size)
        assert np.abs(rates - keep).max() < 5 * sigma
        shifted = np.roll(on, 1, axis)
        assert abs((on & shifted).mean() - keep**2) < 5 / np.sqrt(on.size)


def test_every_word_changes_the_mask() -> None:
    ones = np.ones((3, 4, 5, 6), np.float32)
    masks = [dropped(ones, 0.5, **{word: 1}) for word in ("seed", "edge", "iteration", "image")]
    masks.append(dropped(ones, 0.5))
    for i, a in enumerate(masks):
        for b in masks[:i]:
            assert 0.3 < (a != b).mean() < 0.7


def test_keeps_all_when_asked_and_hides_no_nan() -> None:
    x = normal(0, 3, 2, 2, 5)
    assert same_bits(dropped(x, 1.0), x)
    x[:] = np.nan
    assert np.isnan(dropped(x, 0.5)).all()
