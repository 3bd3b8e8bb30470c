"""What is added up over microbatches: gradients of parameters, and what running statistics move by."""

from __future__ import annotations

from dataclasses import dataclass

from znnpy_kernels.layers.reduction import add_doubles
from znnpy_kernels.simd.rows import add_flat

from znnpy.engine.layers.norms import Normed
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.parameters import Parameter
from znnpy.engine.memory.regions import Buffer
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step
from znnpy.network.types import Node
from znnpy.plan import ranges
from znnpy.plan.cost import MEMORY_RATE


@dataclass(frozen=True)
class Total:
    """What is added up in one slot: numbers of `bytes` 4 or 8 in a buffer, whose regions count `pieces`.

    `ends`: numbers up to the end of each piece. `owner`: the parameter or node whose they are.
    """

    owner: str
    buffer: Buffer
    ends: tuple[int, ...]
    bytes: int = 4

    @property
    def pieces(self) -> int:
        """Regions of the buffer."""
        return len(self.ends)

    def start(self, piece: int) -> int:
        """Numbers before a piece."""
        return self.ends[piece - 1] if piece else 0

    def at(self, piece: int) -> int:
        """Address of a piece."""
        return self.buffer.address + self.bytes * self.start(piece)


def totals(build: Build) -> list[Total]:
    """All that is added up, in the slot of a microbatch; what backward passes make first comes first."""
    normed = (node for node in build.layout.network.nodes if node.norm and node.norm.running)
    gradients = [_gradient(parameter) for parameter in reversed(build.moving)]
    return gradients + [_statistics(build, node) for node in normed]


def _gradient(parameter: Parameter) -> Total:
    ends = tuple(piece.start + piece.floats for piece in parameter.pieces)
    return Total(parameter.name, parameter.gradient_buffer, ends)


def _statistics(build: Build, node: Node) -> Total:
    moments = Normed.of(build, node).moments
    entry = moments.entry // 2
    ends = tuple(entry * (block + 1) for block in range(moments.blocks))
    return Total(node.name, moments.buffer, ends, bytes=8)


def add_totals(step: Step, build: Build, into: int, other: int) -> None:
    """Add what one slot holds to what another does."""
    first, second = totals(build.of(0, into)), totals(build.of(0, other))
    for total, more in zip(first, second, strict=True):
        add_total(step, total, more)


def add_total(step: Step, total: Total, more: Total) -> None:
    """Add the same of another slot, cut into tasks."""
    kernel, rate = (add_flat if total.bytes == 4 else add_doubles), 3 * total.bytes / MEMORY_RATE
    for low, high in ranges(total.pieces, total.ends[-1] * rate):
        length = total.ends[high - 1] - total.start(low)
        own = total.buffer.region(low, high)
        step.add(
            kernel,
            {
                "first": total.at(low),
                "second": more.at(low),
                "target": total.at(low),
                "length": length,
            },
            what=Identity(total.owner, Pass.UPDATE, Part.MICROBATCHES),
            cost=length * rate,
            reads=[own, more.buffer.region(low, high)],
            writes=[own],
        )
