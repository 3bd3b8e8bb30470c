"""Each place once an epoch, in an order of seed and epoch; any sample is found by itself."""

from __future__ import annotations

import numpy as np
import pytest

from znnpy.data.sampling.shuffle import shuffled


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 64, 1000, 4097])
def test_each_epoch_is_a_permutation(size: int) -> None:
    for epoch in (0, 1, 10**9):
        found = [shuffled(epoch * size + k, size, 3) for k in range(size)]
        assert sorted(found) == list(range(size))


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    orders = {
        tuple(shuffled(epoch * 50 + k, 50, seed) for k in range(50))
        for epoch in range(20)
        for seed in (0, 1, 2**64 - 1)
    }
    assert len(orders) == 60


def test_nothing_is_left_of_the_order_of_places() -> None:
    """Neighbours in the order, and places of one number over epochs, are as far apart as chance has them."""
    size = 3000
    order = np.array([shuffled(k, size, 7) for k in range(size)])
    steps = np.corrcoef(order[:-1], order[1:])[0, 1]
    drift = np.corrcoef(order, np.arange(size))[0, 1]
    assert max(abs(steps), abs(drift)) < 4 / np.sqrt(size)
    first = np.array([shuffled(epoch * size, size, 7) for epoch in range(size)])
    parts = np.bincount(first * 10 // size, minlength=10)
    assert ((parts - 300) ** 2 / 300).sum() < 27.9  # chi-square of 9 degrees, 0.1 %
