"""Shared code of direct correlations, into channel blocks (`forward`) and few planar channels (`few_channels`).

A task computes rows of outputs in register blocks: the sums of some channels at some neighbouring x positions. Which
values a vector holds, and how many fit the registers, is each kernel's own. `full_words` and `tap_words` give the
words that say which taps a voxel meets: all of them, or those of its lattice (strides).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import gcd
from typing import Any

from llvmlite import ir
from numba import njit

from znnpy_kernels.direct.epilogue import finished
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.simd.codegen import (
    Value,
    add,
    argument,
    counted_loop,
    float_pointer,
    load_vector,
    moved,
    store_vector,
    when,
    word,
)
from znnpy_kernels.simd.lanes import LANES

NO_LIMIT = 1 << 40  # voxels: longer than any axis, so that no tap is left out
Triple = tuple[int, int, int]

# Output voxel i reads source voxels i * stride + k * sparsity for all taps k, none of which lies outside.
VALID: dict[str, int] = {
    f"{name}_{axis}": value
    for name, value in (
        ("lattice", 1),
        ("skip", 1),
        ("origin", 0),
        ("apart", 0),
        ("limit", NO_LIMIT),
        ("shift", 0),
    )
    for axis in "zyx"
} | {"halo": 0}

AddTap = Callable[[Value, Value, list[Value]], list[Value]]


def full_words(
    stride: Triple, sparsity: Triple, before: Triple, limit: Triple, *, halo: bool
) -> dict[str, int]:
    """Return words for which voxel i reads voxels (i + before - k * sparsity) / stride, where whole and in 0..limit.

    These are the data gradient of a convolution, `before` the voxels of padding before its source, `limit` the size
    of its output; or a transposed convolution. `halo`: zeros stand round the rows that are read.
    """
    words = {"halo": int(halo)}
    for axis, step, apart, first, size in zip("zyx", stride, sparsity, before, limit, strict=True):
        # Taps of a lattice are lattice / gcd apart: only those meet its voxels.
        common = gcd(step, apart)
        words |= {
            f"lattice_{axis}": step,
            f"skip_{axis}": step // common,
            f"origin_{axis}": first,
            f"apart_{axis}": apart,
            f"limit_{axis}": size,
            # Negative: the data gradient reads backwards as taps go forward.
            f"shift_{axis}": -(apart // common),
        }
    return words


def tap_words(words: dict[str, int], strides: Sequence[int]) -> dict[str, int]:
    """Return `tap_z`, `tap_y`, `tap_x` of `full_words`, for a source with these strides in floats."""
    return {
        f"tap_{axis}": words[f"shift_{axis}"] * step
        for axis, step in zip("zyx", strides, strict=True)
    }


class RegisterBlock(ABC):
    """Emits register blocks: vectors of `outputs` images at some number of neighbouring x positions.

    `at`: where the kernel's words stand. `words`: the argument block; addresses of source, target and
    values at the first position; the filter's tap that is the lattice's first; the lattice's taps to take,
    from and to, along z, y and x.
    """

    def __init__(
        self, builder: ir.IRBuilder, at: Any, outputs: int, words: Sequence[Value]
    ) -> None:
        self.builder, self.at, self.outputs = builder, at, outputs
        self.arguments, source, target, output = words[:4]
        self.first, self.z0, self.z1, self.y0, self.y1, self.x0, self.x1 = words[4:]
        self.source = float_pointer(builder, source)
        self.target = float_pointer(builder, target)
        self.output = float_pointer(builder, output)

    @abstractmethod
    def places(self, pointer: Value, block: str, positions: int) -> list[Value]:
        """Return pointers to all vectors of the register block; `block` names the step from channel to channel."""

    @abstractmethod
    def load(self, place: Value, positions: int) -> Value:
        """Load a vector of the register block from memory."""

    @abstractmethod
    def store(self, value: Value, place: Value, positions: int) -> None:
        """Store a vector of the register block to memory."""

    @abstractmethod
    def sums(self, positions: int) -> list[Value]:
        """Return all vectors: the sums over taps, added to the target's values where that is wanted."""

    @abstractmethod
    def biases(self, bias: Value, positions: int) -> list[Value]:
        """Return the bias of each vector; `bias`: pointer to the group's first."""

    @abstractmethod
    def bias_sums(self, values: list[Value], positions: int) -> list[Value]:
        """Return the vectors to be added to the task's bias gradient, in its order."""

    def field(self, name: str) -> Value:
        """Return one word of the kernel's argument block."""
        return argument(self.builder, self.arguments, getattr(self.at, name))

    def asked(self, name: str) -> Value:
        """Return whether a word is not 0."""
        return self.builder.icmp_signed("!=", self.field(name), word(0))

    def emit(self, positions: int) -> None:
        """Compute and store one register block."""
        b = self.builder
        sums, bias = self.sums(positions), float_pointer(b, self.field("bias"))
        # Bias and function are applied to sums in registers: no pass over the target follows.
        values = finished(
            b,
            self.field,
            sums,
            lambda: self.biases(bias, positions),
            lambda: self.loaded(self.output, "output_block", positions),
        )
        places = self.places(self.target, "target_block", positions)
        for value, place in zip(values, places, strict=True):
            self.store(value, place, positions)
        # After the function's gradient: the bias gradient is that of the sum.
        when(b, self.asked("bias_gradient"), [], lambda: self.add_to_bias(values, positions))

    def loaded(self, pointer: Value, block: str, positions: int) -> list[Value]:
        """Load all vectors of the register block from some channels."""
        return [self.load(place, positions) for place in self.places(pointer, block, positions)]

    def add_to_bias(self, values: list[Value], positions: int) -> list[Value]:
        """Add the register block's sums over positions to the task's bias gradient."""
        b = self.builder
        for number, value in enumerate(self.bias_sums(values, positions)):
            place = moved(b, float_pointer(b, self.field("bias_gradient")), number * LANES)
            store_vector(b, add(b, load_vector(b, place), value), place)
        return []

    def one_tap(self, taps_x: Value) -> tuple[Value, Value, Value]:
        """Return whether one tap alone is taken, its number among all, and the source where it reads."""
        b, number, source = self.builder, self.first, self.source
        taken = word(1)
        for first, end, tap, step in self._along(word(1), taps_x):
            # A count may be 0, but not negative.
            taken = b.mul(taken, b.sub(end, first))
            number, source = b.add(number, b.mul(first, step)), moved(b, source, b.mul(first, tap))
        return b.icmp_signed("==", taken, word(1)), number, source

    def taps(
        self,
        source: Value,
        filters: Value,
        step: Value,
        taps_x: Value,
        sums: list[Value],
        add_tap: AddTap,
    ) -> list[Value]:
        """Add the taps z0..z1, y0..y1, x0..x1 of one input block, each by `add_tap`.

        `step`: floats of filters from one of `taps_x` taps to the next.
        """
        b, axes = self.builder, self._along(step, taps_x)

        def along(axis: int, source: Value, filters: Value, sums: list[Value]) -> list[Value]:
            if axis == len(axes):
                return add_tap(source, filters, sums)
            first, end, tap, step = axes[axis]

            def turn(_: Value, carried: list[Value]) -> list[Value]:
                source, filters, *sums = carried
                sums = along(axis + 1, source, filters, sums)
                return [moved(b, source, tap), moved(b, filters, step), *sums]

            # First tap inside: taps before it meet zeros, or memory outside.
            start = [moved(b, source, b.mul(first, tap)), moved(b, filters, b.mul(first, step))]
            return counted_loop(b, b.sub(end, first), [*start, *sums], turn)[2:]

        return along(0, source, moved(b, filters, b.mul(self.first, step)), sums)

    def _along(self, step: Value, taps_x: Value) -> list[tuple[Value, Value, Value, Value]]:
        """Return along z, y and x the taps to take, from and to, and steps of source and filters from tap to tap."""
        b = self.builder
        # Steps of filters over all taps of the axis within, and `skip` of them where a lattice takes some only.
        step_y = b.mul(step, taps_x)
        step_z = b.mul(step_y, self.field("taps_y"))
        return [
            (self.z0, self.z1, self.field("tap_z"), b.mul(step_z, self.field("skip_z"))),
            (self.y0, self.y1, self.field("tap_y"), b.mul(step_y, self.field("skip_y"))),
            (self.x0, self.x1, self.field("tap_x"), b.mul(step, self.field("skip_x"))),
        ]


@part
def lattice_tap(at: int, apart: int, lattice: int, taps: int) -> int:
    """Return the first tap k for which at - k * apart is a multiple of `lattice`; `taps` if there is none."""
    tap = 0
    # At most `lattice` turns matter: taps repeat their remainders. `lattice > 1` first, so that valid layers
    # run no turn.
    while lattice > 1 and tap < taps and (at - tap * apart) % lattice != 0:
        tap += 1
    return tap


@part
def lattice_place(at: int, apart: int, lattice: int, tap: int) -> int:
    """Return which multiple of `lattice` at - tap * apart is."""
    return (at - tap * apart) // lattice


@part
def lattice_taps(first: int, skip: int, taps: int) -> int:
    """Return how many taps there are from `first` on, every `skip`-th."""
    return (taps - first + skip - 1) // skip


@part
def first_tap(low: int, high: int, shift: int, limit: int, taps: int) -> int:
    """Return the first tap k for which some of low..high, moved by k * shift, lies in [0, limit)."""
    # A loop over few taps: cheaper and safer than a quotient whose sign has to be thought of.
    tap = 0
    while tap < taps and (high + tap * shift < 0 or low + tap * shift >= limit):
        tap += 1
    return tap


@part
def end_tap(low: int, high: int, shift: int, limit: int, first: int, taps: int) -> int:
    """Return one past the last such tap; `first` if there is none."""
    end = taps
    while end > first and (high + (end - 1) * shift < 0 or low + (end - 1) * shift >= limit):
        end -= 1
    return end


@njit(inline="always")
def taps_inside(low: int, high: int, shift: int, limit: int, taps: int) -> Any:
    """Return the first such tap and one past the last."""
    first = first_tap(low, high, shift, limit, taps)
    return first, end_tap(low, high, shift, limit, first, taps)


def rows_of(at: Any, row: Any) -> Any:
    """Return the compiled `(outputs, dense, args)` that computes all rows of a task.

    `row(outputs, dense, args, z, y, place, first, z0, z1)` computes one, with the taps z0..z1 along z of those that
    begin at `first`, the first of which reads plane `place` of the source. `outputs`: vectors of the register block
    at a position; `dense`: 1 if x positions are neighbouring vectors of the source.
    """

    @njit(inline="always")
    def rows(outputs: int, dense: int, args: Any) -> None:
        # Overwritten by the task, so zeros first; its rows are added in their order.
        if args[at.bias_gradient]:
            for lane in range(outputs * LANES):
                floats(args[at.bias_gradient])[lane] = 0.0
        # Along z the taps are the same for the whole plane; along y for a row, see `_row` of the kernels.
        for z in range(args[at.z0], args[at.z1]):
            here, apart, lattice = z + args[at.origin_z], args[at.apart_z], args[at.lattice_z]
            first = lattice_tap(here, apart, lattice, args[at.taps_z])
            place = lattice_place(here, apart, lattice, first)
            taps = lattice_taps(first, args[at.skip_z], args[at.taps_z])
            z0, z1 = taps_inside(place, place, args[at.shift_z], args[at.limit_z], taps)
            for y in range(args[at.y0], args[at.y1]):
                row(outputs, dense, args, z, y, place, first, z0, z1)

    return rows
