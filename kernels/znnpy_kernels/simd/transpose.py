"""Transposes LANES x LANES tiles: rows of one channel each into vectors of one voxel each, and back."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import FLOATS, below, load_masked, store, store_masked

_I32 = ir.IntType(32)
# Floats to prefetch ahead: planar channels are many slow streams, which the hardware does not prefetch well.
AHEAD = 16 * LANES


@intrinsic
def scratch_tile(typingctx: Any) -> Any:
    """Return the address of a LANES x LANES float32 tile on the stack of the calling kernel."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.ArrayType(FLOATS.ir, LANES)
        place = cgutils.alloca_once(builder, kind)
        # A cache line, and the widest vector, so that no row of the tile crosses a line.
        place.align = 64
        return builder.ptrtoint(place, ir.IntType(64))

    return types.int64(), codegen


def _transposed(b: Any, rows: list[Any]) -> list[Any]:
    """Transpose in log2(LANES) stages; each exchanges the off-diagonal halves of 2k x 2k squares."""
    half = LANES // 2
    while half:
        # Lane i of `low` keeps its row's where bit `half` of i is 0, and takes the partner's otherwise; `high`
        # the reverse.
        low = [i if not i & half else i - half + LANES for i in range(LANES)]
        high = [i + half if not i & half else i + LANES for i in range(LANES)]
        masks = [ir.Constant(ir.VectorType(_I32, LANES), m) for m in (low, high)]
        out = list(rows)
        for i in range(LANES):
            if not i & half:
                out[i] = b.shuffle_vector(rows[i], rows[i + half], masks[0])
                out[i + half] = b.shuffle_vector(rows[i], rows[i + half], masks[1])
        rows, half = out, half // 2
    return rows


def _transpose(changed: Any) -> tuple[Any, Any]:
    """Return the signature and emitter of a transposition that applies `changed` to each row first."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, source_step, target, target_step = args

        def place(base: Any, step: Any, i: int) -> Any:
            address = builder.add(base, builder.mul(step, ir.Constant(step.type, i)))
            return builder.inttoptr(address, FLOATS.ir.as_pointer())

        # All rows are read before any is written, so source and target may be the same tile.
        rows = [builder.load(place(source, source_step, i), align=4) for i in range(LANES)]
        for i, row in enumerate(_transposed(builder, [changed(builder, row) for row in rows])):
            builder.store(row, place(target, target_step, i), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), codegen


@intrinsic
def transpose_tile(
    typingctx: Any, source: Any, source_step: Any, target: Any, target_step: Any
) -> Any:
    """Write target[j][i] = source[i][j] for a full tile; steps are bytes from row to row."""
    return _transpose(lambda builder, row: row)


@intrinsic
def transpose_negated(
    typingctx: Any, source: Any, source_step: Any, target: Any, target_step: Any
) -> Any:
    """Write target[j][i] = -source[i][j] for a full tile; steps are bytes from row to row."""
    return _transpose(lambda builder, row: builder.fneg(row))


@inlined
def load_tile(source: int, step: int, rows: int, columns: int, tile: int) -> None:
    """Copy rows x columns floats into a dense tile and fill the rest with zeros."""
    inside = below(columns)
    nothing = below(0)
    for i in range(LANES):
        mask = inside if i < rows else nothing
        # Rows beyond are read from row 0 with an empty mask: nothing is read, and no address beyond the array
        # is formed.
        address = source + i * step if i < rows else source
        store(tile + VECTOR_BYTES * i, load_masked(address, mask))


@inlined
def store_tile(tile: int, target: int, step: int, rows: int, columns: int) -> None:
    """Copy the first rows x columns floats of a dense tile out."""
    inside = below(columns)
    for i in range(rows):
        store_masked(target + i * step, inside, load_masked(tile + VECTOR_BYTES * i, inside))


@inlined
def to_rows(source: int, width: int, tile: int) -> None:
    """Transpose `width` <= LANES blocked voxels to tile rows: row c = channel c; the rest is 0."""
    if width >= LANES:
        transpose_tile(source, VECTOR_BYTES, tile, VECTOR_BYTES)
    else:
        load_tile(source, VECTOR_BYTES, width, LANES, tile)
        transpose_tile(tile, VECTOR_BYTES, tile, VECTOR_BYTES)


@inlined
def to_voxels(tile: int, target: int, width: int) -> None:
    """Transpose tile rows (row c = channel c) to `width` <= LANES blocked voxels."""
    if width >= LANES:
        transpose_tile(tile, VECTOR_BYTES, target, VECTOR_BYTES)
    else:
        transpose_tile(tile, VECTOR_BYTES, tile, VECTOR_BYTES)
        store_tile(tile, target, VECTOR_BYTES, width, LANES)
