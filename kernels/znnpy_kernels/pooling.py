"""Max pooling of one channel block: forward with or without the winning taps, and backward.

Output voxel o reads input voxels o * stride + tap * dilation on each axis: stride 1 with dilation
is max_filter on a sparse lattice, a true stride is max_pool. The tap number of (dz, dy, dx) is
(dz * window_y + dy) * window_x + dx, uint16. The first maximum in z, y, x order wins; a NaN in the
window gives NaN, and a tap that holds a NaN wins. Words: byte addresses; `*_z`, `*_y` strides in
floats (in uint16 elements for `index`, whose x stride is LANES); `planes`, `rows`, `width` in
voxels. A window has fewer than 32768 taps.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from znnpy_kernels.abi import kernel
from znnpy_kernels.lanes import LANES
from znnpy_kernels.pooling_rows import (
    gather_dense_rows,
    gather_strided_row,
    pool_row,
    pool_row_values,
    scratch_line,
)
from znnpy_kernels.rows import zero_row

WINDOW_FIELDS = ("window_z", "window_y", "window_x", "stride_z", "stride_y", "stride_x",
                 "dilation_z", "dilation_y", "dilation_x")  # fmt: skip


@njit(forceinline=True)
def _forward(args: Any, wz: int, wy: int, wx: int, line: int) -> None:
    steps = 4 * args[18] * args[1], 4 * args[19] * args[2]
    for z in range(args[9]):
        for y in range(args[10]):
            source = args[0] + 4 * (z * args[15] * args[1] + y * args[16] * args[2])
            target = args[3] + 4 * (z * args[4] + y * args[5])
            index = args[6] + 2 * (z * args[7] + y * args[8])
            pool_row(source, target, index, args[11], wz, wy, wx, steps, args[17], args[20],
                     line)  # fmt: skip


@njit(forceinline=True)
def _forward_values(args: Any, wz: int, wy: int, wx: int, line: int) -> None:
    steps = 4 * args[15] * args[1], 4 * args[16] * args[2]
    for z in range(args[6]):
        for y in range(args[7]):
            source = args[0] + 4 * (z * args[12] * args[1] + y * args[13] * args[2])
            target = args[3] + 4 * (z * args[4] + y * args[5])
            pool_row_values(source, target, args[8], wz, wy, wx, steps, args[14], args[17],
                            line)  # fmt: skip


@kernel("source", "source_z", "source_y", "target", "target_z", "target_y",
        "index", "index_z", "index_y", "planes", "rows", "width", *WINDOW_FIELDS)  # fmt: skip
def max_pool_forward(args: Any, worker: int) -> None:
    """Maxima and winning taps; `planes`, `rows`, `width` measure the part of the output.

    `source` is the first input voxel of the part's first output voxel (the caller offsets it by
    first_plane * stride_z * source_z and so on).
    """
    line = scratch_line()
    # The constants make LLVM unroll these windows.
    if args[12] == 2 and args[13] == 2 and args[14] == 2:
        _forward(args, 2, 2, 2, line)
    elif args[12] == 1 and args[13] == 2 and args[14] == 2:
        _forward(args, 1, 2, 2, line)
    else:
        _forward(args, args[12], args[13], args[14], line)


@kernel("source", "source_z", "source_y", "target", "target_z", "target_y",
        "planes", "rows", "width", *WINDOW_FIELDS)  # fmt: skip
def max_pool_values(args: Any, worker: int) -> None:
    """As `max_pool_forward` without the taps, for inference."""
    line = scratch_line()
    if args[9] == 2 and args[10] == 2 and args[11] == 2:
        _forward_values(args, 2, 2, 2, line)
    elif args[9] == 1 and args[10] == 2 and args[11] == 2:
        _forward_values(args, 1, 2, 2, line)
    else:
        _forward_values(args, args[9], args[10], args[11], line)


@njit(forceinline=True, error_model="numpy")
def _output_of(place: int, tap: int, taps: int, dilation: int, stride: int, size: int) -> int:
    """The output that reads this input place with this tap, or -1."""
    start = place - tap * dilation
    if tap >= taps or start < 0 or start % stride != 0 or start // stride >= size:
        return -1
    return start // stride


@njit(forceinline=True)
def _backward(args: Any, target: int, z: int, y: int, wx: int) -> None:
    """One row of the input's gradient, plane z and row y of the whole input."""
    for dz in range(args[17]):
        oz = _output_of(z, dz, args[17], args[23], args[20], args[6])
        for dy in range(0, args[18] if oz >= 0 else 0, 2):
            first = _output_of(y, dy, args[18], args[24], args[21], args[7])
            second = _output_of(y, dy + 1, args[18], args[24], args[21], args[7])
            number = (dz * args[18] + dy) * wx
            # A row that does not exist is replaced by the other one and numbers that no tap has.
            one = number if first >= 0 else -wx
            two = number + wx if second >= 0 else -wx
            first, second = max(first, second) if first < 0 else first, (
                max(first, second) if second < 0 else second
            )
            if first >= 0:
                gradient = args[0] + 4 * oz * args[1]
                index = args[3] + 2 * oz * args[4]
                gradients = gradient + 4 * first * args[2], gradient + 4 * second * args[2]
                indices = index + 2 * first * args[5], index + 2 * second * args[5]
                if args[22] == 1:
                    gather_dense_rows(gradients, indices, (one, two), target, args[8], args[16],
                                      wx, args[25])  # fmt: skip
                else:
                    for i in range(2):
                        gather_strided_row(gradients[i], indices[i], (one, two)[i], target,
                                           args[8], wx, args[22], args[25])  # fmt: skip


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
            if args[19] == 2:
                _backward(args, target, z + args[12], y + args[13], 2)
            elif args[19] == 3:
                _backward(args, target, z + args[12], y + args[13], 3)
            else:
                _backward(args, target, z + args[12], y + args[13], args[19])
