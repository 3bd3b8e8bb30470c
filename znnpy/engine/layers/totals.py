"""What is added up over microbatches: gradients of parameters, and what running statistics move by."""

from __future__ import annotations

from dataclasses import dataclass, replace

from znnpy_kernels.layers.reduction import add_doubles
from znnpy_kernels.simd.rows import add_flat

from znnpy.engine.layers.norms import Normed
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.parameters import Parameter
from znnpy.engine.memory.regions import Buffer, Region
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step, tree
from znnpy.network.types import Node
from znnpy.plan import ranges
from znnpy.plan.cost import MEMORY_RATE


@dataclass(frozen=True)
class Total:
    """What is added up in one slot: numbers of `bytes` 4 or 8 in a buffer, whose regions count `pieces`.

    `ends`: numbers up to the end of each piece. `owner`: the parameter or node whose they are. `before`: pieces
    and numbers of the buffer that lie before it.
    """

    owner: str
    buffer: Buffer
    ends: tuple[int, ...]
    bytes: int = 4
    before: tuple[int, int] = (0, 0)

    @property
    def pieces(self) -> int:
        """Regions of the buffer."""
        return len(self.ends)

    def start(self, piece: int) -> int:
        """Numbers before a piece."""
        return self.ends[piece - 1] if piece else 0

    def at(self, piece: int) -> int:
        """Address of a piece."""
        return self.buffer.address + self.bytes * (self.before[1] + self.start(piece))

    def region(self, low: int = 0, high: int | None = None) -> Region:
        """Pieces low..high."""
        first = self.before[0]
        return self.buffer.region(first + low, first + (self.pieces if high is None else high))

    @property
    def size(self) -> int:
        """Bytes of all pieces."""
        return self.bytes * self.ends[-1]

    def cut(self, low: int, high: int) -> Total:
        """Pieces low..high as a total of their own."""
        begin, (pieces, numbers) = self.start(low), self.before
        ends = tuple(end - begin for end in self.ends[low:high])
        return replace(self, ends=ends, before=(pieces + low, numbers + begin))


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


def add_total(
    step: Step, total: Total, more: Total, part: Part = Part.MICROBATCHES, phase: int = -1
) -> None:
    """Add the same of another slot, or what a message of that phase has brought; cut into tasks."""
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
    """Loss and error of each output, in the results of a microbatch."""
    return [Total(name, it, (2,), bytes=8) for name, it in build.staged.results.items()]


def add_results(step: Step, build: Build) -> list[Total]:
    """Add up loss and error over the microbatches that are computed here, in those of the first."""
    found = [results(build.of(microbatch, 0)) for microbatch in range(len(build.layout.numbers))]
    for into, other in tree(len(found)):
        for total, more in zip(found[into], found[other], strict=True):
            add_total(step, total, more)
    return found[0]


def moved(build: Build) -> list[Total]:
    """The parameters that updates move, running statistics too: what is stored of them, not what follows."""
    running = (
        f"{node.name}.running_{what}"
        for node in build.layout.network.nodes
        if node.norm and node.norm.running
        for what in ("mean", "variance")
    )
    names = [*(parameter.name for parameter in build.moving), *running]
    return [_values(build.parameters[name]) for name in names]


def _values(parameter: Parameter) -> Total:
    return replace(_gradient(parameter), buffer=parameter.stored)
