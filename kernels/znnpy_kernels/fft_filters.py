"""Filters to spectra and back, by the definition of the discrete Fourier transform.

A filter fills k^3 voxels of a grid of N^3. Axis after axis the transform is a small dense product
with a table of roots of unity, over vectors of neighbouring frequencies: N k operations instead of
N log N, but with k this small, and no zeros touched, it is several times faster than FFTW. The way
back takes only the voxels where taps stand. Sparsity is a matter of the tables alone.

`plan` is `znnpy.plan.filters.FilterPlan.address`; the `FILTER_*` constants are its words.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.abi import kernel
from znnpy_kernels.lanes import LANES
from znnpy_kernels.memory import floats, longs
from znnpy_kernels.simd import (
    FLOAT,
    VECTOR,
    ZERO_VECTOR,
    Value,
    counted_loop,
    float_pointer,
    load_broadcast,
    load_vector,
    moved,
    multiply_add,
    store_vector,
)
from znnpy_kernels.vectors import below, fma, load_masked, splat, store_masked

FILTER_GRID_Z, FILTER_GRID_Y, FILTER_ROW, FILTER_FLOATS = 0, 1, 2, 3
FILTER_TAPS_Z, FILTER_TAPS_Y, FILTER_TAPS_X = 4, 5, 6
FILTER_FORWARD_Z, FILTER_FORWARD_Y, FILTER_FORWARD_X = 7, 8, 9
FILTER_BACK_Z, FILTER_BACK_Y, FILTER_BACK_X = 10, 11, 12
FILTER_WORDS = 13
MOST_TAPS = 64

_I32 = ir.IntType(32)
_SWAPPED = ir.Constant(ir.VectorType(_I32, LANES), [lane ^ 1 for lane in range(LANES)])
_TURN = ir.Constant(VECTOR, [-1.0, 1.0] * (LANES // 2))


@intrinsic
def column_store(typingctx: Any) -> Any:
    """Address of room for MOST_TAPS pairs of vectors on the stack of the calling kernel."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        place = cgutils.alloca_once(builder, ir.ArrayType(VECTOR, 2 * MOST_TAPS))
        place.align = 64
        return builder.ptrtoint(place, ir.IntType(64))

    return types.int64(), codegen


def _turned(builder: ir.IRBuilder, value: Value) -> Value:
    """i times a vector of complex64."""
    swapped = builder.shuffle_vector(value, ir.Constant(VECTOR, ir.Undefined), _SWAPPED)
    return builder.fmul(swapped, _TURN)


def _masked(builder: ir.IRBuilder, kind: str, result: Any, *values: Value) -> Value:
    name = f"llvm.masked.{kind}.v{LANES}f32.p0"
    signature = ir.FunctionType(result, [value.type for value in values])
    function = builder.module.globals.get(name) or ir.Function(builder.module, signature, name)
    return builder.call(function, values)


class _Lines:
    """Loads and stores `vectors` neighbouring vectors; one alone may be partly outside: masked."""

    def __init__(self, builder: ir.IRBuilder, vectors: int, count: Value) -> None:
        self.builder, self.vectors = builder, vectors
        self.mask = _first_lanes(builder, count) if vectors == 1 else None
        self.align = ir.Constant(_I32, 4)

    def load(self, line: Value) -> list[Value]:
        if self.mask is None:
            places = [moved(self.builder, line, v * LANES) for v in range(self.vectors)]
            return [load_vector(self.builder, place) for place in places]
        place = self.builder.bitcast(line, VECTOR.as_pointer())
        values = (place, self.align, self.mask, ZERO_VECTOR)
        return [_masked(self.builder, "load", VECTOR, *values)]

    def store(self, values: list[Value], line: Value) -> None:
        if self.mask is None:
            for v, value in enumerate(values):
                store_vector(self.builder, value, moved(self.builder, line, v * LANES))
        else:
            place = self.builder.bitcast(line, VECTOR.as_pointer())
            stored = (values[0], place, self.align, self.mask)
            _masked(self.builder, "store", ir.VoidType(), *stored)


def _first_lanes(builder: ir.IRBuilder, count: Value) -> Value:
    words = ir.VectorType(count.type, LANES)
    empty = ir.Constant(words, ir.Undefined)
    first = builder.insert_element(empty, count, ir.Constant(_I32, 0))
    zeros = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
    counts = builder.shuffle_vector(first, empty, zeros)
    return builder.icmp_signed("<", ir.Constant(words, list(range(LANES))), counts)


@intrinsic(prefer_literal=True)
def combine(
    typingctx: Any, outs: Any, vectors: Any, count: Any, source: Any, source_step: Any, terms: Any,
    roots: Any, roots_step: Any, target: Any, target_step: Any,
) -> Any:  # fmt: skip
    """target[o] = sum over t of roots[t][o] * source[t], for `outs` x `vectors` vectors (literals).

    Complex64 throughout; addresses in bytes, steps in floats; `roots` has its outs side by side.
    Of a single vector only the first `count` floats are touched.
    """
    if not (isinstance(outs, types.IntegerLiteral) and isinstance(vectors, types.IntegerLiteral)):
        return None
    wide, high = vectors.literal_value, outs.literal_value

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        lines = _Lines(builder, wide, args[2])
        sums = _combined(builder, lines, high, args[3:8])
        place = float_pointer(builder, args[8])
        for out in range(high):
            lines.store(sums[out * wide : (out + 1) * wide], place)
            place = moved(builder, place, args[9])
        return context.get_dummy_value()

    return types.void(outs, vectors, *[types.int64] * 8), codegen


def _combined(builder: ir.IRBuilder, lines: _Lines, outs: int, args: Any) -> list[Value]:
    source, source_step, terms, roots, roots_step = args
    first, table = float_pointer(builder, source), float_pointer(builder, roots)

    def body(term: Value, sums: list[Value]) -> list[Value]:
        root = moved(builder, table, builder.mul(term, roots_step))
        values = lines.load(moved(builder, first, builder.mul(term, source_step)))
        turned = [_turned(builder, value) for value in values]
        following = list(sums)
        for out in range(outs):
            real = load_broadcast(builder, moved(builder, root, 2 * out))
            imaginary = load_broadcast(builder, moved(builder, root, 2 * out + 1))
            for v in range(lines.vectors):
                at = out * lines.vectors + v
                following[at] = multiply_add(builder, real, values[v], following[at])
                following[at] = multiply_add(builder, imaginary, turned[v], following[at])
        return following

    return counted_loop(builder, terms, [ZERO_VECTOR] * (outs * lines.vectors), body)


@intrinsic
def sum_of_lanes(typingctx: Any, vector: Any) -> Any:
    """The sum of a vector's floats, halves added to halves: always in the same order."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        value, half = args[0], LANES // 2
        while half:
            lanes = [(lane + half) % LANES for lane in range(LANES)]
            mask = ir.Constant(ir.VectorType(_I32, LANES), lanes)
            value = builder.fadd(value, builder.shuffle_vector(value, value, mask))
            half //= 2
        return builder.fpext(builder.extract_element(value, ir.Constant(_I32, 0)), ir.DoubleType())

    return types.float64(vector), codegen


@njit(nogil=True)
def combine_all(
    vectors: int, count: int, source: int, source_step: int, terms: int, roots: int,
    target: int, target_step: int, outs: int,
) -> None:  # fmt: skip
    """`combine` for any number of outs, six or fewer at a time, and 1 or 2 vectors."""
    done = 0
    while done < outs:
        few = min(6, outs - done)
        here, to = roots + 8 * done, target + 4 * done * target_step
        if vectors == 2:
            if few == 6:
                combine(6, 2, count, source, source_step, terms, here, 2 * outs, to, target_step)
            elif few == 5:
                combine(5, 2, count, source, source_step, terms, here, 2 * outs, to, target_step)
            elif few == 4:
                combine(4, 2, count, source, source_step, terms, here, 2 * outs, to, target_step)
            elif few == 3:
                combine(3, 2, count, source, source_step, terms, here, 2 * outs, to, target_step)
            elif few == 2:
                combine(2, 2, count, source, source_step, terms, here, 2 * outs, to, target_step)
            else:
                combine(1, 2, count, source, source_step, terms, here, 2 * outs, to, target_step)
        else:
            if few >= 4:
                few = 4
                combine(4, 1, count, source, source_step, terms, here, 2 * outs, to, target_step)
            elif few >= 2:
                few = 2
                combine(2, 1, count, source, source_step, terms, here, 2 * outs, to, target_step)
            else:
                combine(1, 1, count, source, source_step, terms, here, 2 * outs, to, target_step)
        done += few


@njit(nogil=True)
def copy_lines(source: int, source_step: int, target: int, target_step: int, lines: int, count: int) -> None:  # fmt: skip # noqa: E501
    """Copy `count` <= 2 LANES floats of each of some lines; steps in floats."""
    for line in range(lines):
        old, new = source + 4 * line * source_step, target + 4 * line * target_step
        for start in range(0, 2 * LANES, LANES):
            mask = below(max(0, count - start))
            store_masked(new + 4 * start, mask, load_masked(old + 4 * start, mask))


@njit(nogil=True)
def expand(base: int, step: int, terms: int, roots: int, outs: int, width: int) -> None:
    """In place: the first `terms` lines of `width` floats become all `outs` lines, `step` floats apart."""
    column = column_store()
    at = 0
    while at < width:
        vectors = 2 if width - at >= 2 * LANES else 1
        count = min(width - at, vectors * LANES)
        copy_lines(base + 4 * at, step, column, 2 * LANES, terms, count)
        combine_all(vectors, count, column, 2 * LANES, terms, roots, base + 4 * at, step, outs)
        at += count


@njit(nogil=True)
def contract(base: int, step: int, terms: int, roots: int, outs: int, width: int) -> None:
    """In place: all `terms` lines of `width` floats become the first `outs` lines."""
    column = column_store()
    at = 0
    while at < width:
        vectors = 2 if width - at >= 2 * LANES else 1
        count = min(width - at, vectors * LANES)
        combine_all(vectors, count, base + 4 * at, step, terms, roots, column, 2 * LANES, outs)
        copy_lines(column, 2 * LANES, base + 4 * at, step, outs, count)
        at += count


@njit(nogil=True)
def row_of_taps(taps: int, step: int, count: int, roots: int, target: int, row: int) -> None:
    """One row of the spectrum in x of `count` real taps, `step` floats apart."""
    weights = floats(taps)
    for at in range(0, row, LANES):
        mask = below(row - at)
        total = splat(0.0)
        for tap in range(count):
            root = load_masked(roots + 4 * (tap * row + at), mask)
            total = fma(splat(weights[tap * step]), root, total)
        store_masked(target + 4 * at, mask, total)


@njit(nogil=True)
def taps_of_row(source: int, row: int, roots: int, taps: int, step: int, count: int) -> None:
    """The inverse transform in x of one row, at the `count` voxels where taps stand."""
    weights = floats(taps)
    for tap in range(count):
        total = splat(0.0)
        for at in range(0, row, LANES):
            mask = below(row - at)
            root = load_masked(roots + 4 * (tap * row + at), mask)
            total = fma(root, load_masked(source + 4 * at, mask), total)
        weights[tap * step] = sum_of_lanes(total)


@njit(nogil=True)
def filter_to_spectrum(
    source: int, source_z: int, source_y: int, source_x: int, target: int, plan: int
) -> None:
    """One filter, axis by axis, in place on its spectrum's memory."""
    words = longs(plan)
    row, high = words[FILTER_ROW], words[FILTER_GRID_Y]
    plane, taps_y = row * high, words[FILTER_TAPS_Y]
    for z in range(words[FILTER_TAPS_Z]):
        for y in range(taps_y):
            taps = source + 4 * (z * source_z + y * source_y)
            line = target + 4 * (z * plane + y * row)
            row_of_taps(taps, source_x, words[FILTER_TAPS_X], words[FILTER_FORWARD_X], line, row)
        expand(target + 4 * z * plane, row, taps_y, words[FILTER_FORWARD_Y], high, row)
    deep = words[FILTER_GRID_Z]
    expand(target, plane, words[FILTER_TAPS_Z], words[FILTER_FORWARD_Z], deep, plane)
    padding = floats(target)
    for i in range(deep * plane, words[FILTER_FLOATS]):
        padding[i] = 0.0


@njit(nogil=True)
def spectrum_to_filter(
    source: int, target: int, target_z: int, target_y: int, target_x: int, plan: int
) -> None:
    """The taps of one filter's gradient from its spectrum, which is destroyed."""
    words = longs(plan)
    row, high = words[FILTER_ROW], words[FILTER_GRID_Y]
    plane, taps_y = row * high, words[FILTER_TAPS_Y]
    taps_z, deep = words[FILTER_TAPS_Z], words[FILTER_GRID_Z]
    contract(source, plane, deep, words[FILTER_BACK_Z], taps_z, plane)
    for z in range(taps_z):
        contract(source + 4 * z * plane, row, high, words[FILTER_BACK_Y], taps_y, row)
        for y in range(taps_y):
            line = source + 4 * (z * plane + y * row)
            taps = target + 4 * (z * target_z + y * target_y)
            taps_of_row(line, row, words[FILTER_BACK_X], taps, target_x, words[FILTER_TAPS_X])


@kernel(
    "source", "source_z", "source_y", "source_x", "source_filter", "target", "target_filter",
    "filters", "plan",
)  # fmt: skip
def filter_spectra(args: Any, worker: int) -> None:
    """Spectra of `filters` filters: taps at every sparsity-th voxel from the grid's origin, else 0.

    `source`: address of tap 0, 0, 0 of the first filter; strides kz, ky, kx and from filter to filter in
    floats. `target`: address of the first spectrum; `target_filter`: floats between spectra. `plan`:
    `znnpy.plan.filters.plan_filter(grid, size, sparsity).address`. W[f] = sum_j w[j] exp(-2 pi i f j s / N),
    in the layout of `image_spectra`. Tasks on different filters write disjoint memory.
    """
    source, source_z, source_y, source_x, source_filter = (
        args[0],
        args[1],
        args[2],
        args[3],
        args[4],
    )
    target, target_filter, filters, plan = args[5], args[6], args[7], args[8]
    for i in range(filters):
        taps, spectrum = source + 4 * i * source_filter, target + 4 * i * target_filter
        filter_to_spectrum(taps, source_z, source_y, source_x, spectrum, plan)


@kernel(
    "source", "source_filter", "target", "target_z", "target_y", "target_x", "target_filter",
    "filters", "plan",
)  # fmt: skip
def spectra_filters(args: Any, worker: int) -> None:
    """Filter gradients from `filters` spectra: the voxels j * sparsity of the grid, scaled by 1/N.

    `source`: address of the first spectrum, **destroyed**; `source_filter`: floats between spectra.
    `target`: address of tap 0, 0, 0 of the first filter; strides kz, ky, kx and from filter to
    filter in floats; overwritten. `plan`: as for `filter_spectra`. Where the taps of a
    cross-correlation's gradient stand, and why nothing wraps: see `spectral_product`.
    """
    source, source_filter, target = args[0], args[1], args[2]
    target_z, target_y, target_x, target_filter = args[3], args[4], args[5], args[6]
    filters, plan = args[7], args[8]
    for i in range(filters):
        taps, spectrum = target + 4 * i * target_filter, source + 4 * i * source_filter
        spectrum_to_filter(spectrum, taps, target_z, target_y, target_x, plan)
