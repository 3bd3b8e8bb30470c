"""`Step` collects the tasks that emitters declare; sums by a fixed tree; argument words for ranges of planes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.rows import add_flat, add_rows

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.parameters import Parameter, Piece
from znnpy.engine.memory.regions import Buffer, Region, joined
from znnpy.engine.memory.tensors import Planes, Tensor
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.task_identity import Identity
from znnpy.plan import Grain, ranges
from znnpy.plan.cost import MEMORY_RATE
from znnpy.plan.partition import evenly


class AtOnce(Protocol):
    """Protocol of what declares updates of parts of a parameter behind the tasks that make their gradient."""

    def takes(self, parameter: Parameter) -> bool:
        """Return whether nothing but its update reads the parameter's gradient, part by part."""

    def update(
        self, step: Step, build: Build, parameter: Parameter, pieces: range, gradient: Buffer
    ) -> None:
        """Declare the update of some pieces, whose gradient is in a buffer of its own, as a follower of the last task.

        The buffer may be written again behind it. Whatever reads the pieces' old values is declared before.
        """


_Number = TypeVar("_Number", float, NDArray[np.float64])


@dataclass
class Step:
    """The declared tasks of one step, in an order in which they could run one after the other. Not thread-safe.

    `counting`: tasks get no argument words, as they are planned with, and never run: the words of a large network's
    tasks take an eighth of the time in which they are declared.
    """

    tasks: list[Declared] = field(default_factory=list)
    stage: int = 0  # layer and pass that declared tasks belong to
    added: dict[str, int] = field(default_factory=dict)
    """By edge: how many additions over microbatches its weight gradient makes itself."""
    counting: bool = False
    at_once: AtOnce | None = None
    """Of updates whose gradients nobody else waits for; None: gradients are kept."""
    keeps: bool = False
    """Whether gradients are kept all the same: tasks have the order of an update, by which memory is shared."""
    updated: set[str] = field(default_factory=set)
    """Parameters that `at_once` has updated."""
    valued: Step | None = None
    """The step as it was when the only microbatch of an update had its values."""
    _made: set[Buffer] = field(default_factory=set)
    _cuts: dict[Tensor, Sequence[Planes]] = field(default_factory=dict)

    def once(self, buffer: Buffer) -> bool:
        """Return True at the first call with this buffer, so that what several edges share is declared once."""
        first = buffer not in self._made
        self._made.add(buffer)
        return first

    def begin(self) -> None:
        """Begin another microbatch, for which nothing has been declared."""
        self._made.clear()
        self._cuts.clear()
        self.added.clear()

    def note_values(self) -> None:
        """Note that the only microbatch has its values: what follows is its backward pass."""
        self.valued = replace(
            self, tasks=[*self.tasks], added={}, updated=set(), valued=None, _made={*self._made}, _cuts={**self._cuts}
        )  # fmt: skip

    def note_cut(self, tensor: Tensor, parts: Sequence[Planes]) -> None:
        """Note in which parts tasks write a tensor, all blocks and samples alike: who goes on with it takes these."""
        # What no part holds would be left out by all who go on.
        whole = tensor.plane * tensor.extent
        assert sum(floats_of(tensor, planes) for planes in parts) == whole, tensor.buffer.name
        self._cuts[tensor] = parts

    def cut_of(self, tensor: Tensor) -> Sequence[Planes]:
        """Return the parts in which a tensor was written last; none where tasks do not write such parts."""
        return self._cuts.get(tensor, ())

    def parts(self, tensor: Tensor, operands: int, grain: Grain) -> Sequence[Planes]:
        """Return the parts of elementwise work on a tensor: those that it was written in, or `plane_parts`.

        What is done to a part then waits for one task, and not for a stage of them.
        """
        return self.cut_of(tensor) or plane_parts(tensor, operands, grain)

    def add(
        self,
        kernel: Kernel,
        values: Mapping[str, float],
        *,
        what: Identity,
        cost: float,
        reads: Iterable[Region],
        writes: Iterable[Region],
        group: int = -1,
        phase: int = -1,
        divides: bool = False,
        follows: bool = False,
    ) -> None:
        """Declare one task: its kernel, argument words by name, estimated seconds, and the regions that it touches.

        `phase`: of the message that it also waits for; -1: none. `divides`, `follows`: as in `Declared`.
        """
        self.tasks.append(
            Declared(
                kernel,
                () if self.counting else kernel.arguments(**values),
                what,
                cost,
                tuple(reads),
                tuple(writes),
                group,
                self.stage,
                phase,
                divides=divides,
                follows=follows,
            )
        )

    def add_each(
        self,
        kernel: Kernel,
        blocks: range,
        values: Callable[[int], Mapping[str, float]],
        *,
        what: Identity,
        cost: float,
        reads: Callable[[int], Iterable[Region]],
        writes: Callable[[int], Iterable[Region]],
    ) -> None:
        """Declare one task that calls a kernel for each of some blocks; all else as `add`, of one block.

        From block to block words change evenly, but for the last block, which may be narrower.
        """
        self.add_calls(
            kernel,
            blocks,
            values,
            what=what,
            cost=cost * len(blocks),
            reads=joined(region for block in blocks for region in reads(block)),
            writes=joined(region for block in blocks for region in writes(block)),
        )

    def add_calls(
        self,
        kernel: Kernel,
        numbers: range,
        values: Callable[[int], Mapping[str, float]],
        *,
        what: Identity,
        cost: float,
        reads: Iterable[Region],
        writes: Iterable[Region],
        divides: bool = False,
    ) -> None:
        """Declare one task that calls a kernel for each of some numbers, in their order; all else as `add`, of all.

        From number to number words change evenly, but for the last one, which may be another size.
        """
        first, others = numbers[0], numbers[1:]
        self.add(
            kernel, values(first), what=what, cost=cost, reads=reads, writes=writes, divides=divides
        )
        if others:
            more = self._others(kernel, self.tasks[-1].arguments, others, values)
            self.tasks[-1] = replace(self.tasks[-1], more=tuple((kernel, words) for words in more))

    def _others(
        self,
        kernel: Kernel,
        first: Sequence[int],
        others: range,
        values: Callable[[int], Mapping[str, float]],
    ) -> list[Sequence[int]]:
        """Return the argument words of the blocks behind the one whose are `first`."""
        if self.counting:
            return [()] * len(others)
        *even, last = others
        found: list[Sequence[int]] = []
        if even:
            second = kernel.arguments(**values(even[0]))
            steps = [two - one for one, two in zip(first, second, strict=True)]
            for times in range(1, len(others)):
                found.append([one + times * by for one, by in zip(first, steps, strict=True)])
        return [*found, kernel.arguments(**values(last))]


def tree(leaves: int) -> list[tuple[int, int]]:
    """Return pairs (into, from) of a binary tree of fixed shape, in order of addition; leaf 0 ends with the sum.

    The shape depends on the number of leaves alone: so sums have the same bits for any number of workers.
    """
    pairs, distance = [], 1
    while distance < leaves:
        # Neighbours first: sums of leaves that are finished one after the other can begin early.
        pairs += [(i, i + distance) for i in range(0, leaves - distance, 2 * distance)]
        distance *= 2
    return pairs


def added(values: Sequence[_Number]) -> _Number:
    """Return the sum of numbers, or of arrays, by `tree`."""
    sums = list(values)
    for into, other in tree(len(sums)):
        sums[into] = sums[into] + sums[other]
    return sums[0]


def added_pairs(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the sums of the first and of the second numbers of pairs, by `tree`."""
    first, second = zip(*pairs, strict=True)
    return added(first), added(second)


def plane_ranges(
    tensor: Tensor, operands: int, grain: Grain | None = None
) -> list[tuple[int, int]]:
    """Return the ranges of planes into which elementwise work on `operands` blocks like this is cut.

    `grain`: the layout's where tasks leave no sums behind.
    """
    seconds = _seconds(tensor, operands)
    if grain:
        return grain.ranges(tensor.extent, seconds)
    return ranges(tensor.extent, seconds, beside=tensor.batch * tensor.blocks)


def _seconds(tensor: Tensor, operands: int) -> float:
    # Of one block: elementwise tasks take one block at a time.
    return tensor.plane * tensor.extent * 4 * operands / MEMORY_RATE


def plane_parts(tensor: Tensor, operands: int, grain: Grain) -> list[Planes]:
    """Return `plane_ranges` where no sums are left behind, or parts of planes that are too few for the workers."""
    return by_rows(tensor, plane_ranges(tensor, operands, grain), _seconds(tensor, operands), grain)


def shares_of(
    tensor: Tensor, parts: Sequence[Planes], operands: int, grain: Grain
) -> Iterator[tuple[int, range, Planes]]:
    """Yield (item of the batch, blocks, planes) of each task of elementwise work on `operands` tensors like this."""
    seconds = _seconds(tensor, operands) * tensor.blocks / len(parts)
    for batch in range(tensor.batch):
        for blocks in grain.groups(tensor.blocks, seconds):
            for planes in parts:
                yield batch, blocks, planes


LEAST_ROWS = 4
"""Rows of a plane that one task takes at least."""


def by_rows(
    tensor: Tensor,
    cuts: Sequence[tuple[int, int]],
    seconds: float,
    grain: Grain,
    together: int = 1,
    shares: int = 1,
) -> list[Planes]:
    """Return ranges of planes, each as some ranges of rows where there are fewer ranges than workers.

    `seconds`: of all of them. `together`: rows, as many of which stay together. `shares`: ranges of rows that are
    wanted in any case.
    """
    units, wanted = -(-tensor.rows // together), max(shares, grain.shares(seconds, len(cuts)))
    parts = evenly(units, wanted, -(-LEAST_ROWS // together))
    if not parts[1:]:
        return [Planes(low, high) for low, high in cuts]
    rows = [(first * together, min(tensor.rows, last * together)) for first, last in parts]
    return [Planes(low, high, first, last) for low, high in cuts for first, last in rows]


def floats_of(tensor: Tensor, planes: Planes) -> int:
    """Return the floats of some planes or rows of one block."""
    z0, z1, y0, y1 = tensor.box(*planes)
    return (z1 - z0) * (y1 - y0) * tensor.row


def rows_of(
    tensor: Tensor, prefix: str, batch: int, block: int, low: int, first: int = 0
) -> dict[str, int]:
    """Return the argument words `prefix`, `prefix_z`, `prefix_y` for the planes from `low` on, or rows from `first`."""
    # The first row of the range: planes are counted along z or y, whichever axis is cut.
    z, _, y, _ = tensor.box(low, low + 1, first)
    return {
        prefix: tensor.at(batch, block, z, y),
        f"{prefix}_z": tensor.z_stride,
        f"{prefix}_y": tensor.y_stride,
    }


def counts(
    tensor: Tensor, low: int, high: int, first: int = 0, last: int | None = None
) -> dict[str, int]:
    """Return the argument words `planes` and `rows` of a range."""
    z0, z1, y0, y1 = tensor.box(low, high, first, last)
    return {"planes": z1 - z0, "rows": y1 - y0}


def combine_tensors(
    step: Step,
    leaves: Sequence[Tensor],
    what: Identity,
    grain: Grain,
    others: Sequence[Tensor] = (),
    begin: Tensor | None = None,
) -> None:
    """Declare tasks that sum tensors of one shape into the first, by `tree`, for every block and range.

    `others` are added after that, one by one, and are only read. `begin`: what the first of these is added to, of a
    single leaf without a value; None: the sum so far.
    """
    cuts = step.parts(leaves[0], 3, grain)
    target = leaves[0]
    pairs = [(leaves[into], leaves[into], leaves[other]) for into, other in tree(len(leaves))]
    # `others` belong to other nodes and must not be written, so they cannot be inner nodes of the
    # tree.
    sums = [begin or target, *[target for _ in others[1:]]]
    more = [(target, *both) for both in zip(sums, others, strict=bool(others))]
    for target, first, second in pairs + more:
        for batch, blocks, planes in shares_of(first, cuts, 3, grain):
            _add(step, (target, first, second), batch, blocks, planes, what)


def _add(
    step: Step,
    tensors: tuple[Tensor, Tensor, Tensor],
    batch: int,
    blocks: range,
    planes: Planes,
    what: Identity,
) -> None:
    """Declare the task that writes into the first tensor the sum of both others, in some blocks and planes."""
    target, first, second = tensors

    def words(block: int) -> dict[str, int]:
        place = planes.low, planes.first
        return {
            **rows_of(first, "first", batch, block, *place),
            **rows_of(second, "second", batch, block, *place),
            **rows_of(target, "target", batch, block, *place),
            **counts(first, *planes),
            "length": first.row,
        }

    step.add_each(
        add_rows,
        blocks,
        words,
        what=what,
        cost=floats_of(first, planes) * 12 / MEMORY_RATE,
        reads=lambda block: (
            *first.met(batch, block, *planes),
            *second.met(batch, block, *planes),
        ),
        writes=lambda block: target.met(batch, block, *planes),
    )


def combine_pieces(
    step: Step, leaves: Sequence[Buffer], pieces: Sequence[Piece], what: Identity, grain: Grain
) -> None:
    """Declare tasks that sum the pieces of weight gradients in buffers into the first buffer, by `tree`."""
    floats = pieces[-1].start + pieces[-1].floats - pieces[0].start
    for low, high in grain.ranges(len(pieces), (len(leaves) - 1) * floats * 12 / MEMORY_RATE):
        start, last = pieces[low].start, pieces[high - 1]
        combine_flat(
            step,
            [leaf.address + 4 * start for leaf in leaves],
            [leaf.region(low, high) for leaf in leaves],
            last.start + last.floats - start,
            what,
        )


def combine_flat(
    step: Step, leaves: Sequence[int], regions: Sequence[Region], length: int, what: Identity
) -> None:
    """Declare tasks that sum flat arrays of `length` floats into the first, by `tree`."""
    for into, other in tree(len(leaves)):
        step.add(
            add_flat,
            {
                "first": leaves[into],
                "second": leaves[other],
                "target": leaves[into],
                "length": length,
            },
            what=what,
            cost=length * 12 / MEMORY_RATE,
            reads=[regions[into], regions[other]],
            writes=[regions[into]],
        )
