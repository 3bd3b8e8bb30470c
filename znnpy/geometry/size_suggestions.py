"""Errors for sizes that are not possible: they name the nearest that are, or the crop that would mend the network."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from znnpy.errors import NetworkError, ShapeError
from znnpy.geometry.axes import describe
from znnpy.geometry.axis_sizes import Conflict, Found, Line
from znnpy.network.types import Edge, Triple

# The next smaller and the next larger possible size; None where there is none.
Nearest = tuple[int | None, int | None]
MOST_TELLING = 2  # the highest value of `_telling`: at it the search for a better example ends


@dataclass(frozen=True)
class Search:
    """A search for possible sizes near the given ones, along one axis.

    `solve`: `Line.solved` or `Line.made`. `far`: with so many voxels more every edge has enough; 0: do not search.
    `periods`: those after which conflicts repeat, each a multiple of the one before; the last is the period of
    possible sizes: what is possible stays possible with any number of periods more.
    """

    line: Line
    given: Mapping[str, int]
    solve: Callable[[Mapping[str, int]], Found | Conflict]
    far: int
    periods: Sequence[int]

    @property
    def size(self) -> int:
        """The first of the given sizes."""
        return next(iter(self.given.values()))

    def at(self, by: int) -> Found | Conflict:
        """Return the sizes of all nodes, or the conflict, with `by` voxels added to every given size."""
        return self.solve({name: size + by for name, size in self.given.items()})

    def works(self, by: int) -> bool:
        """Return whether the given sizes are possible with `by` voxels added."""
        return not isinstance(self.at(by), Conflict)

    def nearest(self) -> Nearest:
        """Return the next smaller and the next larger possible size; the given one twice if it is possible."""
        if self.works(0):
            return self.size, self.size
        if not self.far:
            return None, None
        least, period = min(self.given.values()), self.periods[-1]
        hopeful = self._hopeful()
        # At most a period down: a possible size further below would come again within it, since
        # what is possible stays so with periods more. Sizes stay at 1 or more.
        below = self._first(range(-1, -min(least, period + 1), -1), hopeful)
        return below, self._above(hopeful) if hopeful else None

    def _above(self, hopeful: Container[int]) -> int | None:
        """Return the next larger possible size.

        Bisects for the first period that has one: all later periods have one, too.
        """
        period = self.periods[-1]

        def first(number: int) -> int | None:
            return self._first(range(number * period + 1, (number + 1) * period + 1), hopeful)

        # From `far` voxels more on every edge has enough, so the last of these has a size if any
        # has.
        periods = range(-(-self.far // period))
        # `bisect_left` gives the end of the range where no earlier period has one: that is the
        # period at `far`, which must have it.
        return first(bisect_left(periods, True, key=lambda number: first(number) is not None))

    def _first(self, steps: Iterable[int], hopeful: Container[int]) -> int | None:
        period = self.periods[-1]
        tried = (by for by in steps if by % period in hopeful)
        return next((self.size + by for by in tried if self.works(by)), None)

    def _hopeful(self) -> set[int]:
        """Return the steps within a period that lead to possible sizes, provided these are large enough.

        A conflict that repeats after half the period rules out every second size at once. So the tries grow with
        the number of halvings of a network, not with the period, which doubles with each.
        """
        # A sieve by ever longer periods: steps that survive one period are repeated within the
        # next.
        found, step = [0], 1
        for period in self.periods:
            longer = (by for first in found for by in range(first, period, step))
            found, step = [by for by in longer if not self._never(by, period)], period
        return set(found)

    def _never(self, by: int, period: int) -> bool:
        """Return whether no size is possible that is larger by `by` plus any number of periods."""
        whole = self.periods[-1]
        # Looked at far out, where a conflict cannot come from an image that is merely too small.
        found = self.at(by + whole * -(-self.far // whole))
        # Only a conflict that repeats within this period rules out all of its steps; one of a
        # longer period may end within it.
        return isinstance(found, Conflict) and period % found.period == 0


def refuse(what: str, searches: Sequence[Search]) -> NoReturn:
    """Raise ShapeError with the nearest possible sizes of `what`, or NetworkError if the network has none."""
    nearest = [search.nearest() for search in searches]
    hopeless = [s for s, near in zip(searches, nearest, strict=True) if near == (None, None)]
    if hopeless:
        raise NetworkError(_never(searches, nearest, hopeless))
    given = describe([search.size for search in searches])
    why = next(found.words for s in searches if isinstance(found := s.at(0), Conflict))
    lower, upper = (
        describe([pair[way] or pair[1 - way] or 0 for pair in nearest]) for way in (0, 1)
    )
    sizes = f"size is {lower}" if lower == upper else f"sizes are {lower} and {upper}"
    raise ShapeError(
        f"{what} {given} (z, y, x) does not fit this network: {why}; the nearest possible {sizes}"
    )


def _never(
    searches: Sequence[Search], nearest: Sequence[Nearest], hopeless: Sequence[Search]
) -> str:
    """Return the message for a network that has no sizes: the two edges that disagree and the crop that helps."""
    order = [node.name for node in searches[0].line.network.nodes]
    found = {search.line.axis: _typical(search) for search in hopeless}
    conflict = max(found.values(), key=lambda it: order.index(it.node) if it.node else -1)
    if not conflict.edges:
        return f"{conflict.words}; no other size is possible either"
    sizes = []
    for search, near in zip(searches, nearest, strict=True):
        mine = found.get(search.line.axis)
        by = (near[1] or near[0] or search.size) - search.size
        wanted = {name: size + by for name, size in search.given.items()}
        known = mine and mine.edges == conflict.edges
        sizes.append(mine.sizes if mine and known else search.line.needs(wanted, conflict.edges))
    (az, bz), (ay, by_), (ax, bx) = sizes
    return _disagreement(conflict.node, conflict.edges, (az, ay, ax), (bz, by_, bx))


def _typical(search: Search) -> Conflict:
    """Return the most useful conflict of nearby sizes: two edges an even difference apart, which a crop mends."""
    # Conflicts repeat after a period; a second one is for sizes near the small end, where edges
    # have too few voxels.
    most = min(search.far, 2 * search.line.output_period)
    found = (search.at(by) for by in range(most + 1))
    # Period 0 marks that nothing was found yet: real conflicts have a period of 1 or more.
    best = Conflict(str, 0)
    for one in found:
        if isinstance(one, Conflict) and (not best.period or _telling(one) > _telling(best)):
            best = one
            if _telling(best) == MOST_TELLING:
                break
    return best


def _telling(conflict: Conflict) -> int:
    if not conflict.sizes:
        return 0
    have, need = conflict.sizes
    # A crop takes as much on both sides, so it mends even differences alone.
    return 1 if (need - have) % 2 else MOST_TELLING


def _disagreement(node: str, edges: tuple[Edge, ...], have: Triple, need: Triple) -> str:
    first, second = edges
    text = (
        f"node {node!r}: edge {first.name!r} needs {describe(have)} voxels (z, y, x), edge "
        f"{second.name!r} needs {describe(need)}"
    )
    more = [b - a for a, b in zip(have, need, strict=True)]
    if any(m % 2 for m in more):
        odd = describe([abs(m) for m in more])
        return f"{text}; no crop fits an odd difference {odd}: change a filter size"
    # A crop that is there already is changed rather than another one added.
    for edge, way in ((first, 1), (second, -1)):
        offset = [o + way * m // 2 for o, m in zip(edge.offset, more, strict=True)]
        if edge.kind == "crop" and min(offset) >= 0:
            return f"{text}; offset {describe(offset)} for {edge.name!r} fits"
    # Along each axis the edge that needs fewer voxels gets the crop: it reads the same node as the other.
    crops = [
        f"with offset {describe(offset)} before {edge.name!r}"
        for edge, way in ((first, 1), (second, -1))
        if any(offset := [max(0, way * m // 2) for m in more])
    ]
    fit = "fit" if len(crops) > 1 else "fits"
    return f"{text}; a crop edge {' and one '.join(crops)} {fit}"
