"""Products of spectra with filters transformed on the fly, so that no filter's spectrum is stored.

A layer has a spectrum for every pair of channels; stored, they are the largest arrays in memory and are read back at
its speed. Recomputed in a worker's scratch, which stays in its L2 cache, they cost a few microseconds each: 2 to 3
times less than stored ones once a layer exceeds the caches (40 -> 40, 5^3, 24^3, one core: 12.3 against 35 ms
forward, 9.2 against 40 ms for the weight gradient), and no more than those in a narrow layer.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.fft.filters import FILTER_FLOATS, filter_to_spectrum, spectrum_to_filter
from znnpy_kernels.fft.products import multiply
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.memory import longs

FILTERED_SUM = words(
    "images images_term images_row source source_z source_y source_x source_term out out_row "
    "terms rows conjugate add group scratch scratch_worker plan",
)


@kernel(FILTERED_SUM)
def filtered_sum(args: Any, worker: int) -> None:
    """out[p] = sum over t < terms of channels[t, p] * spectrum(filter t), or its conjugate, for p < rows.

    `filter_spectra` and `spectral_product` in one, for one output channel of the whole batch:

    - forward: terms are input channels, rows the batch, filters W[o, t], conjugate = 1.
    - data gradient: terms are output channels (DY), filters W[t, c], conjugate = 0.

    `images`, `out`: addresses of spectra; `images_term`, `images_row`, `out_row`: floats between them.
    `source`: address of tap 0, 0, 0 of filter 0; strides kz, ky, kx and from term to term in floats.
    `add`: 1 adds to what stands in out. `scratch`: 64-byte aligned; worker w owns the floats from
    w * `scratch_worker`, at least group * plan.floats. `group`: how many filters are transformed
    before they are multiplied; sums run within groups first, so it is part of what fixes the bits.
    `plan`: `znnpy.plan.twiddle_tables.plan_filter(...)`. Tasks with different outputs write disjoint memory.
    """
    at = FILTERED_SUM
    images, images_term, images_row, source = (
        args[at.images],
        args[at.images_term],
        args[at.images_row],
        args[at.source],
    )
    source_z, source_y, source_x, source_term = (
        args[at.source_z],
        args[at.source_y],
        args[at.source_x],
        args[at.source_term],
    )
    out, out_row, terms, rows, conjugate, add = (
        args[at.out],
        args[at.out_row],
        args[at.terms],
        args[at.rows],
        args[at.conjugate],
        args[at.add],
    )
    group, plan = args[at.group], args[at.plan]
    scratch, count = (
        args[at.scratch] + 4 * worker * args[at.scratch_worker],
        longs(plan)[FILTER_FLOATS],
    )
    # Groups bound the scratch, which is to stay in the L2 cache.
    for first in range(0, terms, group):
        few = min(group, terms - first)
        for i in range(few):
            taps = source + 4 * (first + i) * source_term
            filter_to_spectrum(taps, source_z, source_y, source_x, scratch + 4 * i * count, plan)
        multiply(
            images + 4 * first * images_term, images_term, images_row, scratch, count, 0,
            # The first group stores unless the caller adds; the others add.
            out, out_row, 0, few, rows, 1, count, conjugate, 1 if first > 0 else add,
        )  # fmt: skip


FILTER_GRADIENTS = words(
    "a a_term a_filter b b_term b_filter terms target target_z target_y target_x target_filter "
    "filters scratch scratch_worker plan",
)


@kernel(FILTER_GRADIENTS)
def filter_gradients(args: Any, worker: int) -> None:
    """Taps of filter f's gradient: inverse of the sum over t < terms of a[t, f] * conj(b[t, f]).

    `spectral_product` and `spectra_filters` in one: a = X, b = DY, terms = batch, and filters that
    differ in the output channel (a_filter = 0) or in the input channel (b_filter = 0). `a`, `b`: addresses of
    spectra, which are kept; `_term`, `_filter`: floats between them. `target`: address of tap 0, 0, 0 of
    filter 0; strides kz, ky, kx and from filter to filter in floats; overwritten. `scratch`: 64-byte
    aligned; worker w owns plan.floats floats from w * `scratch_worker`. `plan`: from `plan_filter`.
    """
    at = FILTER_GRADIENTS
    a, a_term, a_filter, b, b_term, b_filter = (
        args[at.a],
        args[at.a_term],
        args[at.a_filter],
        args[at.b],
        args[at.b_term],
        args[at.b_filter],
    )
    terms, target, target_z, target_y, target_x = (
        args[at.terms],
        args[at.target],
        args[at.target_z],
        args[at.target_y],
        args[at.target_x],
    )
    target_filter, filters, plan = args[at.target_filter], args[at.filters], args[at.plan]
    scratch, count = (
        args[at.scratch] + 4 * worker * args[at.scratch_worker],
        longs(plan)[FILTER_FLOATS],
    )
    for i in range(filters):
        left, right = a + 4 * i * a_filter, b + 4 * i * b_filter
        # All terms summed before the one inverse transform.
        multiply(left, a_term, 0, right, b_term, 0, scratch, 0, 0, terms, 1, 1, count, 1, 0)
        taps = target + 4 * i * target_filter
        spectrum_to_filter(scratch, taps, target_z, target_y, target_x, plan)
