"""Cuts passes (convolution and all others) into tasks: how many, by shapes and estimated cost.

Where cuts split a sum they decide its last bits: such ones (`ranges`) never depend on the number of workers. All
others (`Grain.ranges`) do: few workers have few and long tasks, many workers more and shorter ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from znnpy.network.types import Triple

# Of a task that splits no sum, where neither work nor workers are known or many: some hundred times what a steal takes,
# so that scheduling costs little. Larger: workers wait for the last task of a pass. Smaller: dispatch and edges of the
# graph take a larger share.
TARGET_SECONDS = 1e-4
# Of these, short passes are cut as well, so that workers need not wait for a single one at their end: into FEWEST, or
# one for each worker. LEAST_SECONDS bounds that: below it the dispatch of a task is no longer small beside its work.
FEWEST, LEAST_SECONDS = 4, 2e-5
# At least of tasks that many workers take in turns.
TURN_SECONDS = 5e-6
# More parts that bring no more than this are not worth what they do again.
NEARLY = 1.1


def cut_axis(shape: Triple) -> int:
    """Return the axis along which a network's feature maps are cut: z, or y for 2-D and thin volumes."""
    # Eight planes are enough for ranges of planes; thin volumes have more rows than planes. Rows
    # along x stay whole: kernels run along them.
    return 0 if shape[0] >= 8 or shape[0] >= shape[1] else 1


# Bounds of the seconds of a task that splits no sum. Shorter: dispatch and edges would be no longer small beside it.
# Longer: workers would wait at the ends of passes, while 2 ms cost nothing to hand out.
SHORTEST, LONGEST = 2e-5, 2e-3
# Tasks of an update that each worker should have: where tasks are long, and where they are shorter than TARGET_SECONDS
# for the sake of many workers.
MANY_EACH, FEW_EACH = 512, 64
# Of one pass, that few workers may count on each: leaves are joined to fewer.
TASKS_EACH = 32


class Cut(Protocol):
    """Protocol of what cuts an extent, for a pass of so many seconds, into ranges of `least` or more."""

    def __call__(self, extent: int, seconds: float, least: int = 1) -> list[tuple[int, int]]:
        """Return the ranges low..high."""


@dataclass(frozen=True)
class Grain:
    """The seconds that a task should take where cuts split no sum; and at least, where a pass is cut to be shared.

    `fewest`: tasks that a pass has at least, if they are that long; `joined`: if they go through several leaves.
    """

    seconds: float = TARGET_SECONDS
    least: float = LEAST_SECONDS
    fewest: int = FEWEST
    joined: int = TASKS_EACH * FEWEST

    @classmethod
    def of(cls, work: float, workers: int) -> Grain:
        """Return the grain with which so many workers share work of so many estimated seconds on one core."""
        long = min(LONGEST, max(TARGET_SECONDS, work / (MANY_EACH * workers)))
        seconds = max(SHORTEST, min(long, work / (FEW_EACH * workers)))
        fewest, joined = max(FEWEST, workers), TASKS_EACH * max(2, workers)
        return cls(seconds, seconds * LEAST_SECONDS / TARGET_SECONDS, fewest, joined)

    @property
    def many(self) -> bool:
        """Whether there are so many workers that chains of tasks must be short."""
        return self.fewest > FEWEST

    def in_turn(self, turns: int) -> Grain:
        """Return the grain of a pass in which so many tasks follow each other: as much shorter."""
        least = max(min(self.least, TURN_SECONDS), self.least / turns)
        return replace(self, seconds=max(least, self.seconds / turns), least=least)

    def ranges(self, extent: int, seconds: float, least: int = 1) -> list[tuple[int, int]]:
        """Return ranges low..high that cover 0..extent evenly, as `ranges` with tasks of this length."""
        wanted = max(round(seconds / self.seconds), self._shared(seconds))
        return evenly(extent, wanted, least)

    def groups(self, count: int, seconds: float) -> list[range]:
        """Return numbers 0..count in groups that one task goes through; `seconds`: of all.

        Each alone where workers are many: what follows one of them then waits for no other.
        """
        cuts = [(i, i + 1) for i in range(count)] if self.many else self.ranges(count, seconds)
        return [range(*cut) for cut in cuts]

    def together(self, count: int, seconds: float, all_seconds: float) -> list[range]:
        """Return numbers 0..count of equal leaves in groups that one task goes through, as short as a pass needs.

        `seconds`: of these leaves; `all_seconds`: of all of their pass. Each alone where workers are many.
        """
        longest = min(self.seconds, all_seconds / self.joined)
        each = 1 if self.many else max(1, int(longest * count / seconds))
        return [range(*cut) for cut in evenly(count, -(-count // each))]

    def shares(self, seconds: float, pieces: int) -> int:
        """Return into how many parts each of so many pieces is cut, so that there is a task for each worker."""
        return max(1, -(-self._shared(seconds) // pieces))

    def rounds(self, seconds: float, pieces: int, again: float = 0.01) -> int:
        """Return into how many parts each of so many equal pieces is cut, so that workers end a pass together.

        The fewest with which that takes at most NEARLY the least; 1 where workers are few or parts would be too short.
        `again`: the share of a piece that each part does again.
        """
        most = int(seconds / self.least / pieces) if self.many else 1
        found = {
            parts: -(-pieces * parts // self.fewest) * (1.0 / parts + again)
            for parts in range(1, max(1, min(most, self.fewest)) + 1)
        }
        enough = NEARLY * min(found.values())
        return next(parts for parts, rounds in found.items() if rounds <= enough)

    def _shared(self, seconds: float) -> int:
        return min(self.fewest, int(seconds / self.least))


LEAF_SECONDS, LEAVES, LIGHT_LEAVES = 2.5e-5, 16, 128
BESIDE = 8
"""Of a part of a pass whose cuts split a sum: as short as many workers need, until there are so many of them.

Few workers take runs of such leaves (`engine.tasks.runs`). Beyond LEAVES, their length grows as their number does; of
sums of few numbers, which cost nothing to add, beyond LIGHT_LEAVES. Where more than BESIDE sums stand side by side,
all of them together have as many as BESIDE would, or one each.
"""


def ranges(extent: int, seconds: float, least: int = 1, beside: int = 1) -> list[tuple[int, int]]:
    """Return ranges low..high that cover 0..extent evenly, each of `least` or more: leaves of a sum.

    They are the same for any number of workers: each takes about LEAF_SECONDS; of long passes, where n leaves of that
    length would be more than LEAVES, there are the geometric mean of both. `beside`: such sums in the pass.
    """
    return _leaves(extent, seconds, least, LEAVES * min(1.0, BESIDE / beside))


def within(wanted: int, all_seconds: float) -> Cut:
    """Return what cuts a pass, or parts of it into parts, so that there are about as many as `wanted` of all of it."""

    def cut(extent: int, seconds: float, least: int = 1) -> list[tuple[int, int]]:
        return evenly(extent, round(wanted * seconds / all_seconds), least)

    return cut


def light_ranges(extent: int, seconds: float, least: int = 1) -> list[tuple[int, int]]:
    """Return `ranges` for a sum of few numbers, as the gradient of a bias: more of them."""
    return _leaves(extent, seconds, least, LIGHT_LEAVES)


def _leaves(extent: int, seconds: float, least: int, many: float) -> list[tuple[int, int]]:
    leaves = seconds / LEAF_SECONDS
    return evenly(extent, round(min(leaves, (leaves * many) ** 0.5)), least)


def evenly(extent: int, wanted: int, least: int = 1) -> list[tuple[int, int]]:
    """Return `wanted` ranges low..high that cover 0..extent, or fewer of `least` each; one at least."""
    # `least` wins over the number of tasks that are wanted, but there is always one range.
    wanted = max(1, min(extent // least, wanted))
    # Integer arithmetic: the cuts, and so the bits of sums over them, are the same on every machine
    # for the same estimate.
    bounds = [extent * cut // wanted for cut in range(wanted + 1)]
    return list(pairwise(bounds))
