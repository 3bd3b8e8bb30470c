"""What the last updates were fed, on all ranks, when a loss is no longer finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

LARGE = 1e4  # normalised inputs and targets of any use are far below
Images = npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]]
Exchange = Callable[[Any], list[Any]]
"""Tells all ranks a value that JSON can say, and returns those of all, by rank."""


class Seen(NamedTuple):
    """An array that was fed; of what is not finite in it (`bad` values) the first, and its place."""

    what: str
    samples: int
    values: int
    bad: int
    place: list[int]
    first: float
    low: float
    high: float

    @classmethod
    def of(cls, what: str, array: npt.NDArray[Any]) -> Seen:
        """Looks at all values."""
        wrong = np.argwhere(~np.isfinite(array))
        place = [int(n) for n in wrong[0]] if len(wrong) else []
        first = float(array[tuple(place)]) if place else 0.0
        low, high = float(array.min()), float(array.max())
        return cls(what, len(array), array.size, len(wrong), place, first, low, high)

    def and_(self, after: Seen) -> Seen:
        """This one and the samples after it, which another rank was fed, as one array."""
        bad, place, first = self.bad + after.bad, self.place, self.first
        if after.bad and not self.bad:
            place, first = [self.samples + after.place[0], *after.place[1:]], after.first
        samples, values = self.samples + after.samples, self.values + after.values
        low, high = min(self.low, after.low), max(self.high, after.high)
        return Seen(self.what, samples, values, bad, place, first, low, high)


def suspects(fed: Iterable[tuple[str, Images | None]], exchange: Exchange) -> tuple[str, bool]:
    """What is known of arrays (what they are, arrays or by node), and whether they are to blame.

    The arrays are this rank's share of them; all ranks ask together, and get the same answer. Names the
    first that holds NaN or Inf with its place (batch, image, z, y, x), else the largest beyond
    `LARGE`, else the ranges.
    """
    own = [Seen.of(what, array) for what, given in fed for array in _arrays(given)]
    arrays = [_whole(shares) for shares in zip(*exchange(own), strict=True)]
    for array in arrays:
        if array.bad:
            return (
                f"{array.bad} of {array.values} {array.what} are not finite, the first {array.first} at "
                f"{tuple(array.place)} (batch, image, z, y, x)"
            ), True
    sizes = [(max(-array.low, array.high), array.what) for array in arrays]
    if sizes and max(sizes)[0] > LARGE:
        return f"{max(sizes)[1]} reach {max(sizes)[0]:g} in size", True
    return ", ".join(
        _range(what, arrays) for what in dict.fromkeys(it.what for it in arrays)
    ), False


def _whole(shares: Sequence[Sequence[Any]]) -> Seen:
    """One array, of what all ranks saw of it."""
    whole, *rest = [Seen(*share) for share in shares]
    for share in rest:
        whole = whole.and_(share)
    return whole


def _range(what: str, arrays: Iterable[Seen]) -> str:
    low = min(array.low for array in arrays if array.what == what)
    high = max(array.high for array in arrays if array.what == what)
    return f"{what} from {low:.4g} to {high:.4g}"


def _arrays(given: Images | None) -> list[npt.NDArray[Any]]:
    if given is None:
        return []
    return [np.asarray(a) for a in (given.values() if isinstance(given, Mapping) else [given])]
