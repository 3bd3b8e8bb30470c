"""Kernels from filters to whole-image spectra and back, by the definition of the discrete Fourier transform.

A filter fills k^3 voxels of a grid of N^3. Axis after axis the transform is a small dense product
with a table of roots of unity, over vectors of neighbouring frequencies: N k operations instead of
N log N, but with k this small, and no zeros touched, it is many times faster than FFTW. The way
back takes only the voxels where taps stand. Sparsity is a matter of the tables alone.

`plan` is `znnpy.plan.twiddle_tables.FilterPlan.address`; the `FILTER_*` constants are its words.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.fft.pruned_lines import contract, expand
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import floats, longs
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.simd.vectors import below, fma, load_masked, splat, store_masked

# Words of the plan; `znnpy.plan.twiddle_tables` writes them.
FILTER_GRID_Z, FILTER_GRID_Y, FILTER_ROW, FILTER_FLOATS = 0, 1, 2, 3
FILTER_TAPS_Z, FILTER_TAPS_Y, FILTER_TAPS_X = 4, 5, 6
FILTER_FORWARD_Z, FILTER_FORWARD_Y, FILTER_FORWARD_X = 7, 8, 9
FILTER_BACK_Z, FILTER_BACK_Y, FILTER_BACK_X = 10, 11, 12
FILTER_WORDS = 13

_I32 = ir.IntType(32)


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
        # In float32 lane by lane, then once to float64, as numba stores it through a float.
        return builder.fpext(builder.extract_element(value, ir.Constant(_I32, 0)), ir.DoubleType())

    return types.float64(vector), codegen


@part
def row_of_taps(taps: int, step: int, count: int, roots: int, target: int, row: int) -> None:
    """Write one row of the spectrum in x of `count` real taps, `step` floats apart."""
    weights = floats(taps)
    # A vector of frequencies at a time: all taps are added to it in a register.
    for at in range(0, row, LANES):
        mask = below(row - at)
        total = splat(0.0)
        for tap in range(count):
            root = load_masked(roots + 4 * (tap * row + at), mask)
            total = fma(splat(weights[tap * step]), root, total)
        store_masked(target + 4 * at, mask, total)


@part
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


@part
def filter_to_spectrum(
    source: int, source_z: int, source_y: int, source_x: int, target: int, plan: int
) -> None:
    """Transform one filter, axis by axis, in place on its spectrum's memory."""
    words = longs(plan)
    row, high = words[FILTER_ROW], words[FILTER_GRID_Y]
    plane, taps_y = row * high, words[FILTER_TAPS_Y]
    for z in range(words[FILTER_TAPS_Z]):
        for y in range(taps_y):
            taps = source + 4 * (z * source_z + y * source_y)
            line = target + 4 * (z * plane + y * row)
            row_of_taps(taps, source_x, words[FILTER_TAPS_X], words[FILTER_FORWARD_X], line, row)
        # Only planes and rows with taps are expanded along y; along z the whole plane at once.
        expand(target + 4 * z * plane, row, taps_y, words[FILTER_FORWARD_Y], high, row)
    deep = words[FILTER_GRID_Z]
    expand(target, plane, words[FILTER_TAPS_Z], words[FILTER_FORWARD_Z], deep, plane)
    # Padding is zeros, as products run over whole vectors of it.
    padding = floats(target)
    for i in range(deep * plane, words[FILTER_FLOATS]):
        padding[i] = 0.0


@part
def spectrum_to_filter(
    source: int, target: int, target_z: int, target_y: int, target_x: int, plan: int
) -> None:
    """The taps of one filter's gradient from its spectrum, which is destroyed."""
    words = longs(plan)
    row, high = words[FILTER_ROW], words[FILTER_GRID_Y]
    plane, taps_y = row * high, words[FILTER_TAPS_Y]
    taps_z, deep = words[FILTER_TAPS_Z], words[FILTER_GRID_Z]
    # Along z first: it leaves only the planes where taps stand, so y and x have less to do.
    contract(source, plane, deep, words[FILTER_BACK_Z], taps_z, plane)
    for z in range(taps_z):
        contract(source + 4 * z * plane, row, high, words[FILTER_BACK_Y], taps_y, row)
        for y in range(taps_y):
            line = source + 4 * (z * plane + y * row)
            taps = target + 4 * (z * target_z + y * target_y)
            taps_of_row(line, row, words[FILTER_BACK_X], taps, target_x, words[FILTER_TAPS_X])


FILTER_SPECTRA = words(
    "source source_z source_y source_x source_filter target target_filter filters plan",
)


@kernel(FILTER_SPECTRA)
def filter_spectra(args: Any, worker: int) -> None:
    """Spectra of `filters` filters: taps at every sparsity-th voxel from the grid's origin, else 0.

    `source`: address of tap 0, 0, 0 of the first filter; strides kz, ky, kx and from filter to filter in
    floats. `target`: address of the first spectrum; `target_filter`: floats between spectra. `plan`:
    `znnpy.plan.twiddle_tables.plan_filter(grid, size, sparsity).address`. W[f] = sum_j w[j] exp(-2 pi i f j s / N),
    in the layout of `image_spectra`. Tasks on different filters write disjoint memory.
    """
    at = FILTER_SPECTRA
    source, source_z, source_y, source_x, source_filter = (
        args[at.source],
        args[at.source_z],
        args[at.source_y],
        args[at.source_x],
        args[at.source_filter],
    )
    target, target_filter, filters, plan = (
        args[at.target],
        args[at.target_filter],
        args[at.filters],
        args[at.plan],
    )
    for i in range(filters):
        taps, spectrum = source + 4 * i * source_filter, target + 4 * i * target_filter
        filter_to_spectrum(taps, source_z, source_y, source_x, spectrum, plan)


SPECTRA_FILTERS = words(
    "source source_filter target target_z target_y target_x target_filter filters plan",
)


@kernel(SPECTRA_FILTERS)
def spectra_filters(args: Any, worker: int) -> None:
    """Filter gradients from `filters` spectra: the voxels j * sparsity of the grid, scaled by 1/N.

    `source`: address of the first spectrum, **destroyed**; `source_filter`: floats between spectra.
    `target`: address of tap 0, 0, 0 of the first filter; strides kz, ky, kx and from filter to
    filter in floats; overwritten. `plan`: as for `filter_spectra`. Where the taps of a
    cross-correlation's gradient stand, and why nothing wraps: see `spectral_product`.
    """
    at = SPECTRA_FILTERS
    source, source_filter, target = args[at.source], args[at.source_filter], args[at.target]
    target_z, target_y, target_x, target_filter = (
        args[at.target_z],
        args[at.target_y],
        args[at.target_x],
        args[at.target_filter],
    )
    filters, plan = args[at.filters], args[at.plan]
    for i in range(filters):
        taps, spectrum = target + 4 * i * target_filter, source + 4 * i * source_filter
        spectrum_to_filter(spectrum, taps, target_z, target_y, target_x, plan)
