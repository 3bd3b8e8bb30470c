"""The cache of patches that blocks share."""

from __future__ import annotations

from znnpy.data.volume import Array, Triple
from znnpy.infer.blocks import Region

Values = dict[str, Array]


class Kept:
    """Remembers at most `room` patches; those needed last are evicted first (Belady 1966).

    Blocks come z slowest. In another order fewer are found again.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._found: dict[Triple, tuple[Triple, Values]] = {}

    def take(self, patch: Region) -> Values | None:
        """Remove and return the values of a patch; None if it is not remembered."""
        found = self._found.pop(patch.lower, None)
        return found[1] if found else None

    def __contains__(self, patch: Region) -> bool:
        return patch.lower in self._found

    def keep(self, patch: Region, values: Values, now: Region, everything: Region) -> None:
        """Remember the values that the block `now` was made with, if a later one of `everything` needs them."""
        place = _needed_next(patch.within(everything), now)
        # Nothing needs it again, or nothing is remembered.
        if not self._room or place is None:
            return
        self._found[patch.lower] = place, values
        if len(self._found) > self._room:
            # Patches whose next block has gone by, as a mask or a restart may leave them, are
            # dropped first.
            passed = (first for first, (there, _) in self._found.items() if there < now.lower)
            last = max(self._found, key=lambda first: self._found[first][0])
            del self._found[next(passed, last)]


def _needed_next(patch: Region, now: Region) -> Triple | None:
    """Return about where the next block begins that meets a patch; None if its last voxel is in this one."""
    beyond = [high > end for high, end in zip(patch.upper, now.upper, strict=True)]
    # x first, then y, then z: blocks come in that order.
    if beyond[2]:
        return now.lower[0], now.lower[1], now.upper[2]
    if beyond[1]:
        return now.lower[0], now.upper[1], patch.lower[2]
    return (now.upper[0], patch.lower[1], patch.lower[2]) if beyond[0] else None
