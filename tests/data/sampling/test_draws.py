"""Numbers of a sample: those of NumPy's Philox, in ranges, the same again."""

from __future__ import annotations

import numpy as np

from znnpy.data.sampling.draws import MANY, Draws, Key


def test_generators_are_those_of_philox_by_key_and_counter() -> None:
    for seed in (0, 5, 2**64 - 1):
        key = Key(seed)
        for part, index in ((0, 0), (2, 7), (1, 2**40)):
            wanted = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, part, index]))
            found = key.generator(part, index)
            assert np.array_equal(found.random(9), wanted.random(9))
            assert np.array_equal(found.integers(0, 99, 5), wanted.integers(0, 99, 5))


def test_numbers_lie_in_their_ranges_and_come_again() -> None:
    one, again = (Draws(np.random.default_rng(3)) for _ in range(2))
    numbers = [one.whole(-2, 3) for _ in range(10 * MANY)]
    assert set(numbers) == {-2, -1, 0, 1, 2}
    assert numbers == [again.whole(-2, 3) for _ in range(10 * MANY)]
    between = [one.between((-1.5, 4.0)) for _ in range(10 * MANY)]
    assert -1.5 <= min(between) < -1.3
    assert 3.8 < max(between) < 4
    each = one.each((2.0, 3.0), 1000)
    assert each.shape == (1000,)
    assert 2 <= each.min() < 2.1
    assert abs(one.normal((2000,)).std() - 1) < 0.1
    seeds = one.seeds(4)
    assert seeds.dtype == np.int64
    assert len(set(seeds.tolist())) == 4
