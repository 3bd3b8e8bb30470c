"""Max pooling of one channel block: forward with or without the winning taps, and backward.

Output voxel o reads input voxels o * stride + tap * dilation on each axis: stride 1 with dilation
is max_filter on a sparse lattice, a true stride is max_pool. Tap number of (dz, dy, dx) is (dz *
window_y + dy) * window_x + dx, uint16. The first maximum in z, y, x order wins; a NaN in the
window gives NaN (and its tap wins). Words: byte addresses; `*_z`, `*_y` strides in floats (in
uint16 elements for `index`, whose x stride is LANES); `planes`, `rows`, `width` in voxels.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from znnpy_kernels.abi import kernel
from znnpy_kernels.lanes import LANES
from znnpy_kernels.rows import zero_row
from znnpy_kernels.vectors import (
    load,
    load_shorts,
    select,
    select_shorts,
    splat,
    splat_short,
    store,
    store_shorts,
)

BYTES = 4 * LANES
INDEX_BYTES = 2 * LANES
WINDOW_FIELDS = ("window_z", "window_y", "window_x", "stride_z", "stride_y", "stride_x",
                 "dilation_z", "dilation_y", "dilation_x")  # fmt: skip


@njit(forceinline=True)
def _best(source: int, wz: int, wy: int, wx: int, step_z: int, step_y: int, step_x: int) -> Any:
    """Maximum and winning tap over one window; steps are bytes from tap to tap."""
    best, tap = load(source), splat_short(0)
    number = 0
    for dz in range(wz):
        for dy in range(wy):
            for dx in range(wx):
                value = load(source + dz * step_z + dy * step_y + dx * step_x)
                take = (value > best) | (value != value)
                best = select(take, value, best)
                tap = select_shorts(take, splat_short(number), tap)
                number += 1
    return best, tap


@njit(forceinline=True)
def _largest(source: int, wz: int, wy: int, wx: int, step_z: int, step_y: int, step_x: int) -> Any:
    best = load(source)
    for dz in range(wz):
        for dy in range(wy):
            for dx in range(wx):
                value = load(source + dz * step_z + dy * step_y + dx * step_x)
                best = select((value > best) | (value != value), value, best)
    return best


@njit(forceinline=True)
def _forward(args: Any, wz: int, wy: int, wx: int) -> None:
    step_z, step_y, step_x = 4 * args[18] * args[1], 4 * args[19] * args[2], BYTES * args[20]
    for z in range(args[9]):
        for y in range(args[10]):
            source = args[0] + 4 * (z * args[15] * args[1] + y * args[16] * args[2])
            target = args[3] + 4 * (z * args[4] + y * args[5])
            index = args[6] + 2 * (z * args[7] + y * args[8])
            for x in range(args[11]):
                at = source + BYTES * x * args[17]
                best, tap = _best(at, wz, wy, wx, step_z, step_y, step_x)
                store(target + BYTES * x, best)
                store_shorts(index + INDEX_BYTES * x, tap)


@njit(forceinline=True)
def _forward_values(args: Any, wz: int, wy: int, wx: int) -> None:
    step_z, step_y, step_x = 4 * args[15] * args[1], 4 * args[16] * args[2], BYTES * args[17]
    for z in range(args[6]):
        for y in range(args[7]):
            source = args[0] + 4 * (z * args[12] * args[1] + y * args[13] * args[2])
            target = args[3] + 4 * (z * args[4] + y * args[5])
            for x in range(args[8]):
                at = source + BYTES * x * args[14]
                store(target + BYTES * x, _largest(at, wz, wy, wx, step_z, step_y, step_x))


@kernel("source", "source_z", "source_y", "target", "target_z", "target_y",
        "index", "index_z", "index_y", "planes", "rows", "width", *WINDOW_FIELDS)  # fmt: skip
def max_pool_forward(args: Any, worker: int) -> None:
    """Maxima and winning taps; `planes`, `rows`, `width` measure the part of the output.

    `source` is the first input voxel of the part's first output voxel (the caller offsets it by
    first_plane * stride_z * source_z and so on).
    """
    # The constants make LLVM unroll these windows.
    if args[12] == 2 and args[13] == 2 and args[14] == 2:
        _forward(args, 2, 2, 2)
    elif args[12] == 1 and args[13] == 2 and args[14] == 2:
        _forward(args, 1, 2, 2)
    else:
        _forward(args, args[12], args[13], args[14])


@kernel("source", "source_z", "source_y", "target", "target_z", "target_y",
        "planes", "rows", "width", *WINDOW_FIELDS)  # fmt: skip
def max_pool_values(args: Any, worker: int) -> None:
    """As `max_pool_forward` without the taps, for inference."""
    if args[9] == 2 and args[10] == 2 and args[11] == 2:
        _forward_values(args, 2, 2, 2)
    elif args[9] == 1 and args[10] == 2 and args[11] == 2:
        _forward_values(args, 1, 2, 2)
    else:
        _forward_values(args, args[9], args[10], args[11])


@njit(forceinline=True, error_model="numpy")
def _output_of(place: int, tap: int, dilation: int, stride: int, size: int) -> int:
    """The output that reads this input place with this tap, or -1."""
    start = place - tap * dilation
    if start < 0 or start % stride != 0 or start // stride >= size:
        return -1
    return start // stride


@njit(forceinline=True)
def _gather_row(
    gradient: int, index: int, target: int, outputs: int, number: int,
    window: int, stride: int, dilation: int,
) -> None:  # fmt: skip
    """Add the gradients of one row of outputs to the input voxels that won them."""
    for dx in range(window):
        wanted = splat_short(number + dx)
        for o in range(outputs):
            at = target + BYTES * (o * stride + dx * dilation)
            won = load_shorts(index + INDEX_BYTES * o) == wanted
            share = select(won, load(gradient + BYTES * o), splat(0.0))
            store(at, load(at) + share)


@kernel("gradient", "gradient_z", "gradient_y", "index", "index_z", "index_y",
        "outputs_z", "outputs_y", "outputs_x", "target", "target_z", "target_y",
        "first_plane", "first_row", "planes", "rows", "width", *WINDOW_FIELDS)  # fmt: skip
def max_pool_backward(args: Any, worker: int) -> None:
    """Each input voxel gets the sum of the gradients of the outputs that it won, in order of taps.

    `gradient` and `index` are the addresses of the whole pooled block of outputs_z x outputs_y x
    outputs_x voxels; `target` is the address of this part's first row, plane `first_plane` and
    row `first_row` of the input; `planes`, `rows`, `width` measure the part (whole rows). Every
    voxel of the part is written.
    """
    for z in range(args[14]):
        for y in range(args[15]):
            target = args[9] + 4 * (z * args[10] + y * args[11])
            zero_row(target, LANES * args[16])
            for dz in range(args[17]):
                oz = _output_of(z + args[12], dz, args[23], args[20], args[6])
                for dy in range(args[18]):
                    oy = _output_of(y + args[13], dy, args[24], args[21], args[7])
                    if oz >= 0 and oy >= 0:
                        gradient = args[0] + 4 * (oz * args[1] + oy * args[2])
                        index = args[3] + 2 * (oz * args[4] + oy * args[5])
                        number = (dz * args[18] + dy) * args[19]
                        _gather_row(gradient, index, target, args[8], number,
                                    args[19], args[22], args[25])  # fmt: skip
