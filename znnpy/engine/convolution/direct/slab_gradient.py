"""Tasks of direct weight gradients that add what one slab of positions brings to the pieces of some outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import prod
from typing import NamedTuple

from znnpy_kernels.direct.few_channels_gradient import FEW_INPUTS, FEW_OUTPUTS, WIDEST, most_rows
from znnpy_kernels.direct.weight_gradient import (
    OPEN,
    earlier_words,
    weight_gradient_kernel,
    zeros_words,
)
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.direct.correlation import source_words
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.parameters import Piece
from znnpy.engine.memory.regions import Buffer, Region
from znnpy.engine.memory.tensors import Tensor, source_range
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import ONCE, Edge
from znnpy.plan import ranges
from znnpy.plan.algorithms.direct import DIRECT_RATE
from znnpy.plan.cost import MEMORY_RATE


class Slab(NamedTuple):
    """What one leaf of a weight gradient's sum takes: planes low..high of the gradient of some samples."""

    samples: range
    low: int
    high: int


def slab_gradient(
    step: Step,
    build: Build,
    edge: Edge,
    factors: tuple[Tensor, Tensor],
    piece: Piece,
    slab: Slab,
    place: int,
    region: Region,
    beside: int,
    earlier: Sequence[Buffer] = (),
) -> None:
    """Declare the tasks that add what one slab brings to the pieces of a group of outputs, joined in one.

    With the sums that lie in `earlier` as the pieces do. A task takes some rows of taps of a piece, beside others, or
    all of several pieces, where these are so short. `beside`: pieces of all slabs.
    """
    it = _Products(build, edge, *factors, piece, slab, place, region, tuple(earlier))
    most, rows, all_seconds = it.kernel[2], it.rows, beside * it.seconds(0)

    def cuts_of(number: int) -> list[tuple[int, int]]:
        # Of the products alone: what is added was made by the same ranges.
        return ranges(-(-rows // most), it.flops(number) / DIRECT_RATE, beside=beside)

    for cuts, own in groupby(range(it.count), cuts_of):
        numbers = list(own)
        seconds = sum(map(it.seconds, numbers))
        each = build.layout.grain.together(len(numbers), seconds, all_seconds)
        # What all ranges of a piece read stays in caches.
        groups = each if len(cuts) == 1 else [range(i, i + 1) for i in range(len(numbers))]
        for group in groups:
            for first, last in cuts:
                some = range(numbers[group.start], numbers[group.start] + len(group))
                it.declare(step, some, first * most, min(rows, last * most))


@dataclass(frozen=True)
class _Products:
    """Sums of products of source and gradient over a slab, for the pieces of a group of outputs, by number.

    `piece`: all of them, which lie one behind the other from `place` on; `region`: what is written.
    """

    build: Build
    edge: Edge
    source: Tensor
    gradient: Tensor
    piece: Piece
    slab: Slab
    place: int
    region: Region
    earlier: tuple[Buffer, ...]

    @property
    def _each(self) -> int:
        """Inputs of a piece, but for the last one, which may have fewer."""
        return self.build.parameters[self.edge.name].source_lanes

    @property
    def _vectors(self) -> int:
        """Vectors of outputs; of a planar gradient, its channels."""
        return self.gradient.channels if self.gradient.lanes == 1 else self.piece.width // LANES

    @property
    def count(self) -> int:
        """How many pieces there are."""
        return -(-self.piece.inputs // self._each)

    @property
    def rows(self) -> int:
        """Rows of taps along x, counted in z, y order."""
        return self.edge.size[0] * self.edge.size[1]

    def _inputs(self, number: int) -> int:
        return min(self._each, self.piece.inputs - number * self._each)

    def _floats(self, inputs: int) -> int:
        return self.piece.floats // self.piece.inputs * inputs

    def flops(self, number: int) -> float:
        """Return the operations of a piece's products."""
        (samples, low, high), gradient, whole = self.slab, self.gradient, self.piece.width
        width = gradient.channels if gradient.lanes == 1 else whole
        flops = 2.0 * self._floats(self._inputs(number)) / whole * width
        return flops * (len(samples) * (high - low) * prod(gradient.shape) / gradient.extent)

    def seconds(self, number: int) -> float:
        """Return the estimated seconds of a piece."""
        floats = self._floats(self._inputs(number))
        return self.flops(number) / DIRECT_RATE + len(self.earlier) * 4 * floats / MEMORY_RATE

    @cached_property
    def kernel(self) -> tuple[Kernel, dict[str, int], int]:
        """The kernel, its own words, and how many rows of taps it does at once."""
        few, samples = self.gradient.lanes == 1, len(self.slab.samples)
        return _gradient_kernel(self.build, self.edge, self.source, self._vectors, samples, few=few)

    @cached_property
    def _words(self) -> dict[str, int]:
        """The words that all pieces have in common."""
        (samples, low, high), edge = self.slab, self.edge
        source, gradient = self.source, self.gradient
        z0, z1, y0, y1 = gradient.box(low, high)
        along, gradient_z, own = gradient.shape[2], gradient.z_stride, self.kernel[1]
        dilation = self.build.layout.geometry.dilations[edge.name]
        words = source_words(source, edge.stride, edge.size, dilation) | own
        del words["taps_z"], words["source_block"]
        if len(samples) > 1:
            z1, gradient_z = len(samples), gradient.batch_stride
            words["source_z"] = source.batch_stride
        if "vectors" in own:
            del words["source_lanes"]
        if self._first_y is not None:
            y0, y1, along = 0, 1, (y1 - y0) * along
        block = self.piece.first_output // gradient.lanes
        return words | {
            "gradient": gradient.at(samples.start, block, 0, self._first_y or 0),
            "gradient_block": gradient.block_stride,
            "gradient_z": gradient_z,
            "gradient_y": gradient.y_stride,
            "z0": z0,
            "z1": z1,
            "y0": y0,
            "y1": y1,
            "width": along,
        }

    @cached_property
    def _first_y(self) -> int | None:
        """The row from which all are one long row; None: each is a row."""
        if not _follows(self.edge, self.source, self.gradient):
            return None
        return self.gradient.box(self.slab.low, self.slab.high)[2]

    def _block(self, number: int) -> int:
        """Return the block of the source that a piece is of; planar tensors have one for each channel."""
        return (self.piece.first_input + number * self._each) // self.source.lanes

    def _words_of(self, number: int, first: int, last: int) -> dict[str, int]:
        at = 4 * self._floats(number * self._each)
        places = [buffer.address + 4 * self.piece.start + at for buffer in self.earlier]
        return {
            **self._words,
            **(earlier_words(places) if places else {}),
            "source": self.source.at(
                self.slab.samples.start, self._block(number), 0, self._first_y or 0
            ),
            "channels": self._inputs(number),
            "tap_row0": first,
            "tap_row1": last,
            "target": self.place + at,
        }

    @cached_property
    def _gradient_read(self) -> list[Region]:
        (samples, *planes), block = self.slab, self.piece.first_output // self.gradient.lanes
        blocks = range(block, block + self._vectors)
        return [it for own in samples for it in self.gradient.met_by(own, blocks, *planes)]

    def declare(self, step: Step, numbers: range, first: int, last: int) -> None:
        """Declare the task that does rows first..last of the taps of some pieces."""
        (samples, *planes), source, edge = self.slab, self.source, self.edge
        dilation = self.build.layout.geometry.dilations[edge.name]
        seen = source_range(edge, dilation, self.gradient.cut, *planes)
        low, high = self.region.low + numbers.start, self.region.low + numbers.stop
        blocks = range(self._block(numbers.start), self._block(numbers.stop - 1) + 1)
        step.add_calls(
            self.kernel[0],
            numbers,
            lambda number: self._words_of(number, first, last),
            what=Identity(edge.name, Pass.WEIGHT, Part.DIRECT),
            cost=sum(map(self.seconds, numbers)) * (last - first) / self.rows,
            reads=[
                *(it for own in samples for it in source.met_by(own, blocks, *seen)),
                *self._gradient_read,
                *(buffer.region(low, high, strand=first) for buffer in self.earlier),
            ],
            writes=[self.region._replace(low=low, high=high, strand=first)],
        )


def _follows(edge: Edge, source: Tensor, gradient: Tensor) -> bool:
    """Return whether filters of one tap see rows that lie one behind the other in both: one long row."""
    alike = edge.size == edge.stride == ONCE and source.shape == gradient.shape
    dense = all(it.lanes == LANES and it.y_stride == it.row for it in (source, gradient))
    return alike and dense


def takes_few_inputs(build: Build, edge: Edge, source: Tensor) -> bool:
    """Return whether there is a kernel for so few images, which lie planar."""
    dilation = build.layout.geometry.dilations[edge.name]
    return source.lanes == 1 and dilation[2] == 1 and edge.size[2] <= WIDEST


def _gradient_kernel(
    build: Build,
    edge: Edge,
    source: Tensor,
    vectors: int,
    samples: int,
    *,
    few: bool,
) -> tuple[Kernel, dict[str, int], int]:
    """Return the kernel of a weight gradient, its own words, and how many rows of taps it does at once."""
    if few:
        return FEW_OUTPUTS[vectors - 1], {"vectors": 1, "outputs": vectors}, 1
    if takes_few_inputs(build, edge, source):
        kernel = FEW_INPUTS[edge.size[2] - 1]
        return kernel, {"vectors": vectors, "outputs": 0}, most_rows(edge.size[2])
    known = _known_zeros(build, edge, source, samples) | earlier_words(())
    return weight_gradient_kernel(vectors, source.lanes), known, 1


def _known_zeros(build: Build, edge: Edge, source: Tensor, samples: int) -> dict[str, int]:
    """Return the words of the zeros around the source along z and y: products with these are left out."""
    dilation, sides = build.layout.geometry.dilations[edge.name], build.layout.padding(edge)
    padded = edge.kind == "conv" and edge.border == "zeros" and max(edge.stride) == 1

    def axis(number: int) -> tuple[int, int, int]:
        before, after = sides[number]
        # Samples of planes are counted along z.
        if not padded or (number == 0 and samples > 1):
            return 0, OPEN, dilation[number]
        return before, source.shape[number] - before - after, dilation[number]

    return zeros_words(axis(0), axis(1))
