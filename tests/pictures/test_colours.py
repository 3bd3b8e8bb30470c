"""Colours against published values, and far enough apart for people."""

from __future__ import annotations

import numpy as np
import pytest
from skimage.color import deltaE_ciede2000, rgb2lab

from znnpy.pictures.colours import (
    are_shares,
    object_colours,
    oklch,
    outlines,
    overlay,
    share_colours,
)


@pytest.mark.parametrize(
    ("lightness", "chroma", "degrees", "rgb"),
    [
        (1.0, 0.0, 0.0, (1, 1, 1)),
        (0.0, 0.0, 0.0, (0, 0, 0)),
        (0.62796, 0.25768, 29.234, (1, 0, 0)),
        (0.86644, 0.29483, 142.495, (0, 1, 0)),
        (0.45201, 0.31321, 264.052, (0, 0, 1)),
    ],
)
def test_oklch(lightness: float, chroma: float, degrees: float, rgb: tuple[int, ...]) -> None:
    found = oklch(np.array(lightness), np.array(chroma), np.array(degrees / 360))
    np.testing.assert_allclose(found, rgb, atol=0.01)


def test_colours_that_no_screen_shows_are_the_nearest_ones() -> None:
    found = oklch(np.array([0.9, 0.1]), np.array(0.4), np.linspace(0, 1, 50)[:, None])
    assert (found.min(), found.max()) == (0, pytest.approx(1))


@pytest.mark.parametrize("first", [1, 1000, 2**33, 2**63 + 5])
def test_neighbouring_numbers_are_told_apart(first: int) -> None:
    ids = first + np.arange(12, dtype=np.uint64)
    colours = rgb2lab(object_colours(ids))
    pairs = [deltaE_ciede2000(colours[i], colours[j]) for i in range(12) for j in range(i)]
    assert min(pairs) > 8
    assert np.median(pairs) > 30


def test_numbers_keep_their_colours() -> None:
    ids = np.array([[0, 5, 9], [9, 0, 7]])
    colours = object_colours(ids)
    assert colours.shape == (2, 3, 3)
    assert not colours[ids == 0].any()
    assert np.array_equal(colours[0, 2], object_colours(np.array([9]))[0])
    assert np.array_equal(colours[0, 2], colours[1, 0])


def test_overlay() -> None:
    ids = np.zeros((6, 6), int)
    ids[2:, 2:] = 3
    edges = outlines(ids)
    assert edges.sum() == 7
    assert edges[2, 2:].all()
    assert edges[2:, 2].all()
    assert outlines(ids, (False, True)).sum() == 4
    grey = np.full((6, 6), 0.5)
    mixed, colour = overlay(grey, ids), object_colours(np.array([3]))[0]
    np.testing.assert_allclose(mixed[0, 0], 0.5)
    np.testing.assert_allclose(mixed[2, 4], colour)
    np.testing.assert_allclose(mixed[4, 4], (colour + 0.5) / 2)


@pytest.mark.parametrize("classes", [2, 5, 40])
def test_shares_of_classes_mix_their_colours(classes: int) -> None:
    """A class alone has the colour of its number; where nothing is known there is black."""
    shares = np.random.default_rng(0).dirichlet(np.ones(classes), (6, 7)).transpose(2, 0, 1)
    shares[:, 0] = np.eye(classes)[:, np.arange(7) % classes]
    shares[:, 1] = 0
    assert are_shares(shares.astype(np.float32))
    assert are_shares((shares * 255).round().astype(np.uint8) / 255)
    mixed, colours = share_colours(shares), object_colours(np.arange(classes))
    assert np.array_equal(mixed[0], colours[np.arange(7) % classes])
    assert not mixed[1].any()
    np.testing.assert_allclose(mixed[4, 2], colours.T @ shares[:, 4, 2], rtol=1e-5)


def test_what_is_no_share() -> None:
    ones = np.ones((1, 4, 5), np.float32)
    assert not are_shares(ones)  # one channel
    assert not are_shares(np.concatenate([ones, ones]))
    assert not are_shares(np.concatenate([ones * 2, -ones]))
    assert not are_shares(np.zeros((2, 4, 5), np.float32))
    one, other = ones * 0.3, ones * 0.7
    assert are_shares(np.concatenate([one, other]))
    one[0, 2, 3] = np.nan
    assert not are_shares(np.concatenate([one, other]))
    one[0, 2, 3], other[0, 2, 3] = np.inf, -np.inf
    with np.errstate(all="raise"):
        assert not are_shares(np.concatenate([one, other]))
    other[0, 2, 3] = 0.7
    one[0, 2, 3] = 0.6
    assert not are_shares(np.concatenate([one, other]))
