"""The reduction tree over ranks: which microbatches each rank has, and which ranks add up which sums.

The top node of the tree over n leaves joins the first of them, the largest power of two below n, with the
rest, and so on (`engine/tasks/step.tree`). A rank owns one subtree, so that what ranks add to each other are
the inner nodes above theirs: the sum has the same bits for any number of ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from znnpy.distributed.errors import DistributedError

T = TypeVar("T")
FEW = 4
"""Messages that a rank sends at once in a round at most: with more, two rounds of less are sooner over."""


class Subtree(NamedTuple):
    """A node of the tree over microbatches: `leaves` of them from `first` on."""

    first: int
    leaves: int

    @property
    def numbers(self) -> range:
        """The numbers of its microbatches."""
        return range(self.first, self.first + self.leaves)

    @property
    def halves(self) -> tuple[Subtree, Subtree]:
        """Return the two nodes that it joins."""
        # The largest power of two below the leaves; for a power of two, half of them.
        left = 1 << (self.leaves - 1).bit_length() - 1
        return Subtree(self.first, left), Subtree(self.first + left, self.leaves - left)


class Hop(NamedTuple):
    """An addition between ranks: `into` adds what `source` has; on the way down `source` gets the result."""

    into: int
    source: int


@dataclass(frozen=True)
class _Node:
    """A node of the tree over ranks; a leaf is one rank's subtree."""

    subtree: Subtree
    children: tuple[_Node, _Node] | None = None

    def split(self) -> _Node:
        """Return the tree with its largest leaf, the first of those, split in two."""
        if self.children is None:
            left, right = self.subtree.halves
            return _Node(self.subtree, (_Node(left), _Node(right)))
        left_node, right_node = self.children
        # `>=`: of equal leaves the first, the same on every rank.
        if left_node.largest >= right_node.largest:
            return _Node(self.subtree, (left_node.split(), right_node))
        return _Node(self.subtree, (left_node, right_node.split()))

    @property
    def largest(self) -> int:
        """Return the number of microbatches of the largest leaf."""
        if self.children is None:
            return self.subtree.leaves
        return max(child.largest for child in self.children)

    @property
    def owned(self) -> list[Subtree]:
        """Return the leaves from left to right."""
        if self.children is None:
            return [self.subtree]
        return [leaf for child in self.children for leaf in child.owned]


@dataclass(frozen=True)
class Ranks:
    """`size` ranks that divide `microbatches` among them: `owned` by rank."""

    microbatches: int
    owned: tuple[Subtree, ...]
    _top: _Node

    @classmethod
    def of(cls, microbatches: int, size: int) -> Ranks:
        """Split the largest subtree until every rank has one; raise DistributedError if some get none."""
        if size > microbatches:
            raise DistributedError(
                f"a batch of {microbatches} microbatches is too small for {size} ranks, of which each has "
                f"at least one: start at most {microbatches}, or make training.microbatch smaller"
            )
        top = _Node(Subtree(0, microbatches))
        # One leaf more each time, so `size - 1` splits.
        for _ in range(size - 1):
            top = top.split()
        return cls(microbatches, tuple(top.owned), top)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.owned)

    def hops(self, color: int = 0) -> list[Hop]:
        """Return the additions over ranks, in an order in which they could be made one after the other.

        The last one's `into` has the sum. Colors add the same pairs of sums, in other places: bit h of the
        color says whether nodes of height h + 1 are added at their right or left child's place.
        """
        _, _, hops = self._hops(self._top, 0, color)
        return hops

    def rounds(self) -> list[list[Hop]] | None:
        """Return the additions by which every rank gets the sum, node after node: recursive doubling.

        Before a node's round each rank below it has its own child's sum; all hops of a round carry what their source
        had before it, and no rank adds more than once in a round. None where a node's children have so different
        numbers of ranks that one would send to more than FEW at once.
        """
        return self._found

    @cached_property
    def _found(self) -> list[list[Hop]] | None:
        # Once: every message of a small layer asks, and of many ranks they take milliseconds.
        found = self._rounds(self._top, 0)
        most = max(
            (n for hops in found for n in Counter(it.source for it in hops).values()), default=0
        )
        return found if most <= FEW else None

    def add_up(self, values: Sequence[T], add: Callable[[T, T], T]) -> T:
        """Return the sum of the ranks' values, added up as messages would."""
        sums = list(values)
        for into, source in self.hops():
            sums[into] = add(sums[into], sums[source])
        # With color 0 every addition is at the left child's place, so the sum ends at rank 0.
        return sums[0]

    def _hops(self, node: _Node, first: int, color: int) -> tuple[int, int, list[Hop]]:
        """Return the place of a node's sum, its height, and the additions; `first`: its first rank."""
        if node.children is None:
            return first, 0, []
        left, right = node.children
        low, low_height, before = self._hops(left, first, color)
        high, high_height, more = self._hops(right, first + len(left.owned), color)
        height = 1 + max(low_height, high_height)
        # Bit h of the color, h = height - 1: two colors differ in some bit, and so have different adding ranks
        # at that height.
        hop = Hop(high, low) if color >> height - 1 & 1 else Hop(low, high)
        return hop.into, height, [*before, *more, hop]

    def _rounds(self, node: _Node, first: int) -> list[list[Hop]]:
        """Return the rounds of a node and those below it; `first`: its first rank."""
        if node.children is None:
            return []
        left, right = node.children
        middle = first + len(left.owned)
        low, high = range(first, middle), range(middle, first + len(node.owned))
        # Each meets the one in its place on the other side, or, of the side with fewer, the same again and again.
        hops = [
            Hop(into, others[place % len(others)])
            for own, others in ((low, high), (high, low))
            for place, into in enumerate(own)
        ]
        return [*self._rounds(left, first), *self._rounds(right, middle), hops]


def largest_microbatch(batch: int, ranks: int) -> int:
    """Return the largest microbatch with which every rank has one; DistributedError for too few samples."""
    if ranks > batch:
        raise DistributedError(
            f"training.batch is {batch}, and {ranks} ranks were started, each of which needs a sample of its "
            f"own: start at most {batch}, or make the batch larger"
        )
    # Divisors from large to small; 1 divides everything.
    return next(size for size in range(batch // ranks, 0, -1) if batch % size == 0)
