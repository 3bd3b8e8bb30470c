"""The tasks of one step in the making: emitters add to it, sums converge in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.rows import add_flat, add_rows

from znnpy.engine.memory.regions import Buffer, Region
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.task_identity import Identity
from znnpy.plan import ranges
from znnpy.plan.cost import MEMORY_RATE

_Number = TypeVar("_Number", float, NDArray[np.float64])


@dataclass
class Step:
    """Declared tasks of one step, in an order in which they could run one after the other."""

    tasks: list[Declared] = field(default_factory=list)
    stage: int = 0  # layer and pass that declared tasks belong to
    added: dict[str, int] = field(default_factory=dict)
    """Additions over microbatches that weight gradients of one make themselves, by edge."""
    _made: set[Buffer] = field(default_factory=set)

    def once(self, buffer: Buffer) -> bool:
        """True at the first call with this buffer: for what several edges share."""
        first = buffer not in self._made
        self._made.add(buffer)
        return first

    def begin(self) -> None:
        """Another microbatch begins, for which nothing is there yet."""
        self._made.clear()
        self.added.clear()

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
    ) -> None:
        """Declare one task: its kernel, argument words, estimated seconds, and what it touches.

        `phase`: of the message that it waits for beside what it touches.
        """
        self.tasks.append(
            Declared(
                kernel,
                kernel.arguments(**values),
                what,
                cost,
                tuple(reads),
                tuple(writes),
                group,
                self.stage,
                phase,
            )
        )


def tree(leaves: int) -> list[tuple[int, int]]:
    """Pairs (into, from) of a combining tree of fixed shape; leaf 0 ends with the sum of all."""
    pairs, distance = [], 1
    while distance < leaves:
        pairs += [(i, i + distance) for i in range(0, leaves - distance, 2 * distance)]
        distance *= 2
    return pairs


def added(values: Sequence[_Number]) -> _Number:
    """The sum of numbers, or of arrays, by the same tree."""
    sums = list(values)
    for into, other in tree(len(sums)):
        sums[into] = sums[into] + sums[other]
    return sums[0]


def added_pairs(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The same of pairs, each side for itself."""
    first, second = zip(*pairs, strict=True)
    return added(first), added(second)


def plane_ranges(tensor: Tensor, operands: int) -> list[tuple[int, int]]:
    """Cuts of one block for an elementwise task that touches `operands` such blocks."""
    floats = tensor.shape[0] * tensor.shape[1] * tensor.row
    return ranges(tensor.extent, floats * 4 * operands / MEMORY_RATE)


def rows_of(tensor: Tensor, prefix: str, batch: int, block: int, low: int) -> dict[str, int]:
    """The argument words `prefix`, `prefix_z`, `prefix_y` for the planes from `low` on."""
    z, _, y, _ = tensor.box(low, low + 1)
    return {
        prefix: tensor.at(batch, block, z, y),
        f"{prefix}_z": tensor.z_stride,
        f"{prefix}_y": tensor.y_stride,
    }


def counts(tensor: Tensor, low: int, high: int) -> dict[str, int]:
    """The argument words `planes` and `rows` of a range."""
    z0, z1, y0, y1 = tensor.box(low, high)
    return {"planes": z1 - z0, "rows": y1 - y0}


def combine_tensors(
    step: Step, leaves: Sequence[Tensor], what: Identity, others: Sequence[Tensor] = ()
) -> None:
    """Sum tensors of one shape into the first, by a fixed tree for every block and range.

    `others` are added after that one by one, and are not written.
    """
    cuts = plane_ranges(leaves[0], 3)
    pairs = [(leaves[into], leaves[other]) for into, other in tree(len(leaves))]
    for first, second in pairs + [(leaves[0], other) for other in others]:
        for batch in range(first.batch):
            for block in range(first.blocks):
                for low, high in cuts:
                    step.add(
                        add_rows,
                        {
                            **rows_of(first, "first", batch, block, low),
                            **rows_of(second, "second", batch, block, low),
                            **rows_of(first, "target", batch, block, low),
                            **counts(first, low, high),
                            "length": first.row,
                        },
                        what=what,
                        cost=first.row * first.shape[1] * (high - low) * 12 / MEMORY_RATE,
                        reads=[
                            first.region(batch, block, low, high),
                            second.region(batch, block, low, high),
                        ],
                        writes=[first.region(batch, block, low, high)],
                    )


def combine_flat(
    step: Step, leaves: Sequence[int], regions: Sequence[Region], length: int, what: Identity
) -> None:
    """Sum flat ranges of `length` floats into the first, by a tree of fixed shape."""
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
