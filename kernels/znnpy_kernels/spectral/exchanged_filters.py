"""Spectra of the forward pass's filters as data gradients multiply them: conjugated, inputs and outputs exchanged."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.transpose import load_tile, scratch_tile, transpose_negated, transpose_tile
from znnpy_kernels.spectral.gauss_blocks import MOST_VECTORS
from znnpy_kernels.spectral.product_words import Product
from znnpy_kernels.spectral.register_blocks import PAIR, VECTORS


def backward_floats(inputs: int) -> int:
    """Floats of scratch that each worker needs for exchanged filters of so many terms."""
    # Rounded up to whole vectors of terms.
    return -(-inputs // LANES) * LANES * max(VECTORS, MOST_VECTORS) * PAIR


@inlined
def filters_from(vectors: int, product: Product, w: int, first: int, scratch: int) -> Any:
    """Return address and steps, from term to term, vector to vector and to imaginary parts, of `vectors` vectors.

    From vector `first` on, of one frequency; in scratch if they are exchanged.
    """
    if product.images:
        return _exchanged(vectors, product, w, first * LANES, scratch)
    return w + 4 * first * product.w_block, product.w_input, product.w_block, LANES


@inlined
def _exchanged(vectors: int, product: Product, w: int, first: int, scratch: int) -> Any:
    """Scratch [term][vector][PAIR]: conjugate filters of all terms and the images from `first` on."""
    row, step = 4 * product.w_input, 4 * PAIR * vectors
    rest = scratch_tile()
    # Terms outside, vectors within, as register blocks step from term to term.
    for vector in range(vectors):
        image = first + vector * LANES
        held = min(LANES, product.images - image)
        for block in range(cover(product.inputs, LANES)):
            source = w + image * row + 4 * block * product.w_block
            target = scratch + block * LANES * step + 4 * PAIR * vector
            if held == LANES:
                # Conjugated while it is transposed: imaginary parts are negated in registers.
                transpose_tile(source, row, target, step)
                transpose_negated(source + VECTOR_BYTES, row, target + VECTOR_BYTES, step)
            else:
                # Fewer images than lanes: the rest becomes zeros, by a tile on the stack.
                load_tile(source, row, held, LANES, rest)
                transpose_tile(rest, VECTOR_BYTES, target, step)
                load_tile(source + VECTOR_BYTES, row, held, LANES, rest)
                transpose_negated(rest, VECTOR_BYTES, target + VECTOR_BYTES, step)
    return scratch, vectors * PAIR, PAIR, LANES
