"""Gradient accumulation: tasks that sum gradients, statistics and losses over microbatches."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Self

from znnpy_kernels.layers.reduction import add_doubles
from znnpy_kernels.simd.rows import add_flat

from znnpy.distributed.buckets import Pieces
from znnpy.engine.layers.normalization_tables import Normed
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.parameters import Parameter
from znnpy.engine.memory.regions import Buffer, Region
from znnpy.engine.tasks.step import Step, tree
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Node
from znnpy.plan import ranges
from znnpy.plan.cost import MEMORY_RATE


@dataclass(frozen=True, kw_only=True)
class Total(Pieces):
    """One array to be summed, in one slot: pieces of a buffer whose regions count pieces.

    `before`: how many pieces and numbers of the buffer lie before it.
    """

    buffer: Buffer
    before: tuple[int, int] = (0, 0)

    def at(self, piece: int) -> int:
        """Return the address of a piece."""
        # `before`: pieces and numbers, as regions count the former and addresses the latter.
        return self.buffer.address + self.bytes * (self.before[1] + self.start(piece))

    def region(self, low: int = 0, high: int | None = None) -> Region:
        """Return the region of pieces low..high."""
        first = self.before[0]
        return self.buffer.region(first + low, first + (self.pieces if high is None else high))

    def cut(self, low: int, high: int) -> Self:
        """Return pieces low..high as a total of their own."""
        pieces, numbers = self.before
        before = pieces + low, numbers + self.start(low)
        return replace(super().cut(low, high), before=before)


def totals(build: Build) -> list[Total]:
    """Return all that is summed over microbatches, in the slot of one; in the order in which it is computed."""
    normed = (node for node in build.layout.network.nodes if node.norm and node.norm.running)
    # The last layers' gradients are ready first.
    gradients = [_gradient(parameter) for parameter in reversed(build.moving)]
    return gradients + [_statistics(build, node) for node in normed]


def _gradient(parameter: Parameter) -> Total:
    ends = tuple(piece.start + piece.floats for piece in parameter.pieces)
    return Total(parameter.name, ends, buffer=parameter.gradient_buffer)


def _statistics(build: Build, node: Node) -> Total:
    moments = Normed.of(build, node).moments
    # Pieces count numbers of 8 bytes, entries floats.
    entry = moments.entry // 2
    ends = tuple(entry * (block + 1) for block in range(moments.blocks))
    return Total(node.name, ends, bytes=8, buffer=moments.buffer)


def add_totals(step: Step, build: Build, into: int, other: int, made: Collection[str] = ()) -> None:
    """Declare the addition of slot `other` to slot `into`, except for gradients whose own tasks have `made` it."""
    first, second = totals(build.of(0, into)), totals(build.of(0, other))
    for total, more in zip(first, second, strict=True):
        # Direct weight gradients add earlier microbatches' sums themselves (`multiply`).
        if total.owner not in made:
            add_total(step, total, more)


def add_total(
    step: Step, total: Total, more: Total, part: Part = Part.MICROBATCHES, phase: int = -1
) -> None:
    """Declare the tasks that add `more` to `total`: another slot's, or what a message of that phase has brought."""
    # Two operands read, one written.
    kernel, rate = (add_flat if total.bytes == 4 else add_doubles), 3 * total.bytes / MEMORY_RATE
    for low, high in ranges(total.pieces, total.ends[-1] * rate):
        length = total.ends[high - 1] - total.start(low)
        own = total.region(low, high)
        step.add(
            kernel,
            {
                "first": total.at(low),
                "second": more.at(low),
                "target": total.at(low),
                "length": length,
            },
            what=Identity(total.owner, Pass.UPDATE, part),
            cost=length * rate,
            reads=[own, more.region(low, high)],
            writes=[own],
            phase=phase,
        )


def results(build: Build) -> list[Total]:
    """Return loss and error of each output, in the results of a microbatch."""
    return [Total(name, (2,), bytes=8, buffer=it) for name, it in build.staged.results.items()]


def add_results(step: Step, build: Build) -> list[Total]:
    """Declare the sum of loss and error over the microbatches computed here; return the first one's, which takes it."""
    found = [results(build.of(microbatch, 0)) for microbatch in range(len(build.layout.numbers))]
    # The same tree as for gradients, over the same numbers.
    for into, other in tree(len(found)):
        for total, more in zip(found[into], found[other], strict=True):
            add_total(step, total, more)
    return found[0]


def moved(build: Build) -> list[Total]:
    """Return all that an update changes, as stored: parameters and running statistics, nothing derived from them.

    In the order of `totals`, so that messages with parameters carry the same pieces as those with gradients.
    """
    running = (
        f"{node.name}.running_{what}"
        for node in build.layout.network.nodes
        if node.norm and node.norm.running
        for what in ("mean", "variance")
    )
    # Running statistics are not learned, but move with an update.
    names = [*(parameter.name for parameter in reversed(build.moving)), *running]
    return [_values(build.parameters[name]) for name in names]


def _values(parameter: Parameter) -> Total:
    return replace(_gradient(parameter), buffer=parameter.stored)
