"""Exact quantiles of any number of values in bounded memory: digit by digit, a pass over the values for each.

Values are ordered as whole numbers are whose bits they have. A pass counts the next DIGIT bits of those that begin as
the wanted ones do: a byte image takes one pass, float32 two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import floor
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from znnpy.data.volume import Array

DIGIT = 16
Keys = NDArray[Any]
Parts = Callable[[], Iterable[Sequence[Array]]]
"""Returns all values anew for each pass: pieces, of each the values of all channels, 1-D."""


class Selection:
    """The values of one channel at some `shares` of their order, from 0 (the least) to 1 (the largest)."""

    def __init__(self, dtype: DTypeLike, shares: Sequence[float]) -> None:
        self.dtype, self.shares = np.dtype(dtype), shares
        self.count = 0
        self._left = 8 * self.dtype.itemsize
        self._digit = min(DIGIT, self._left)
        self._found: dict[
            int, tuple[int, int]
        ] = {}  # by rank: what its key begins with, its rank there
        self._begin({0})

    @property
    def done(self) -> bool:
        """Whether no pass is left to make."""
        return self._left == 0 or (self._left < 8 * self.dtype.itemsize and self.count == 0)

    def add(self, values: Array) -> None:
        """Take some values in this pass; none is NaN."""
        keys, rest = _keys(values), self._left - self._digit
        for start, counts in self._counts.items():
            some = keys if start == 0 and not self._found else keys[keys >> self._left == start]
            digits = (some >> rest) & ((1 << self._digit) - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=len(counts))

    def next(self) -> None:
        """End a pass over all values."""
        if not self._found:
            self.count = int(self._counts[0].sum())
            self._found = {rank: (0, rank) for rank in self._ranks()}
        for rank, (start, place) in self._found.items():
            ends = np.cumsum(self._counts[start])
            digit = int(np.searchsorted(ends, place, side="right"))
            before = int(ends[digit - 1]) if digit else 0
            self._found[rank] = (start << self._digit) + digit, place - before
        self._left -= self._digit
        self._begin({start for start, _ in self._found.values()})

    def values(self) -> list[float]:
        """Return the value at each share, between two neighbours their mean by distance, as NumPy's percentile."""
        found = []
        for share in self.shares:
            place = share * (self.count - 1)
            rank = min(floor(place), self.count - 1)
            low, high = self._value(rank), self._value(min(rank + 1, self.count - 1))
            found.append(low + (high - low) * (place - rank))
        return found

    def _begin(self, starts: set[int]) -> None:
        self._counts = {start: np.zeros(1 << self._digit, np.int64) for start in starts}

    def _ranks(self) -> set[int]:
        first = {floor(share * (self.count - 1)) for share in self.shares} if self.count else set()
        return {min(rank + more, self.count - 1) for rank in first for more in (0, 1)}

    def _value(self, rank: int) -> float:
        key = np.array([self._found[rank][0]], np.uint64).astype(f"u{self.dtype.itemsize}")
        sign = key.dtype.type(1 << (8 * key.itemsize - 1))
        if self.dtype.kind == "i":
            key ^= sign
        elif self.dtype.kind == "f":
            key = np.where(key & sign, key ^ sign, ~key)
        return float(key.view(self.dtype)[0])


def quantiles(
    parts: Parts, channels: int, dtype: DTypeLike, shares: Sequence[float]
) -> list[list[float]]:
    """Return the values at some shares of the order of each channel; none of a channel without values."""
    every = [Selection(dtype, shares) for _ in range(channels)]
    while not all(one.done for one in every):
        for part in parts():
            for one, values in zip(every, part, strict=True):
                if not one.done:
                    one.add(values)
        for one in every:
            if not one.done:
                one.next()
    return [one.values() if one.count else [] for one in every]


def _keys(values: Array) -> Keys:
    """Return whole numbers without signs in the order of some values."""
    kind = np.dtype(f"u{values.dtype.itemsize}")
    keys: Keys = np.ascontiguousarray(values).view(kind)
    sign = kind.type(1 << (8 * kind.itemsize - 1))
    if values.dtype.kind == "i":
        keys = keys ^ sign
    if values.dtype.kind == "f":
        keys = np.where(keys & sign, ~keys, keys | sign)
    return keys
