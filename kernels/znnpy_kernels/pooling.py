"""Max pooling of one channel block: forward with or without the winning taps, and backward.

Output voxel o reads input voxels o * stride + tap * dilation on each axis: stride 1 with dilation
is max_filter on a sparse lattice (`pooling_pairs` where the window has at most two voxels along each
axis), a true stride is max_pool. The tap number of (dz, dy, dx) is
(dz * window_y + dy) * window_x + dx, uint16. The first maximum in z, y, x order wins; a NaN in the
window gives NaN, and a tap that holds a NaN wins. Words: byte addresses; `*_z`, `*_y` strides in
floats (in uint16 elements for `index`, whose x stride is LANES); `planes`, `rows`, `width` in
voxels. A window has fewer than 32768 taps.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.abi import kernel
from znnpy_kernels.inlining import inlined
from znnpy_kernels.lanes import LANES
from znnpy_kernels.pooling_rows import (
    LINE,
    gather_dense_rows,
    gather_strided_row,
    pool_columns,
    pool_columns_values,
    pool_windows,
    pool_windows_values,
    scratch_line,
)
from znnpy_kernels.rows import zero_row

WINDOW_FIELDS = ("window_z", "window_y", "window_x", "stride_z", "stride_y", "stride_x",
                 "dilation_z", "dilation_y", "dilation_x")  # fmt: skip


@inlined
def _by_columns(window: int, stride: int, dilation: int) -> bool:
    return stride == 1 and 0 < 2 * (window - 1) * dilation < LINE


@inlined
def _row(
    source: int, target: int, index: int, width: int, window: Any, steps: Any, stride: int,
    dilation: int, line: int,
) -> None:  # fmt: skip
    """One row; constant sizes make LLVM unroll the usual windows."""
    wz, wy, wx = window
    void = True
    if _by_columns(wx, stride, dilation):
        void = pool_columns(source, target, index, width, wz, wy, wx, steps, dilation, line)
    if void and wy == 2 and wx == 2 and wz == 2:
        pool_windows(source, target, index, width, 2, 2, 2, steps, stride, dilation)
    elif void and wy == 2 and wx == 2 and wz == 1:
        pool_windows(source, target, index, width, 1, 2, 2, steps, stride, dilation)
    elif void:
        pool_windows(source, target, index, width, wz, wy, wx, steps, stride, dilation)


@inlined
def _row_values(
    source: int, target: int, width: int, window: Any, steps: Any, stride: int, dilation: int,
    line: int,
) -> None:  # fmt: skip
    wz, wy, wx = window
    void = True
    if _by_columns(wx, stride, dilation):
        void = pool_columns_values(source, target, width, wz, wy, wx, steps, dilation, line)
    if void and wy == 2 and wx == 2 and wz == 2:
        pool_windows_values(source, target, width, 2, 2, 2, steps, stride, dilation)
    elif void and wy == 2 and wx == 2 and wz == 1:
        pool_windows_values(source, target, width, 1, 2, 2, steps, stride, dilation)
    elif void:
        pool_windows_values(source, target, width, wz, wy, wx, steps, stride, dilation)


@kernel("source", "source_z", "source_y", "target", "target_z", "target_y",
        "index", "index_z", "index_y", "planes", "rows", "width", *WINDOW_FIELDS)  # fmt: skip
def max_pool_forward(args: Any, worker: int) -> None:
    """Maxima and winning taps; `planes`, `rows`, `width` measure the part of the output.

    `source` is the first input voxel of the part's first output voxel (the caller offsets it by
    first_plane * stride_z * source_z and so on).
    """
    line = scratch_line()
    steps = 4 * args[18] * args[1], 4 * args[19] * args[2]
    for z in range(args[9]):
        for y in range(args[10]):
            source = args[0] + 4 * (z * args[15] * args[1] + y * args[16] * args[2])
            target = args[3] + 4 * (z * args[4] + y * args[5])
            index = args[6] + 2 * (z * args[7] + y * args[8])
            _row(source, target, index, args[11], (args[12], args[13], args[14]), steps, args[17],
                 args[20], line)  # fmt: skip


@kernel("source", "source_z", "source_y", "target", "target_z", "target_y",
        "planes", "rows", "width", *WINDOW_FIELDS)  # fmt: skip
def max_pool_values(args: Any, worker: int) -> None:
    """As `max_pool_forward` without the taps, for inference."""
    line = scratch_line()
    steps = 4 * args[15] * args[1], 4 * args[16] * args[2]
    for z in range(args[6]):
        for y in range(args[7]):
            source = args[0] + 4 * (z * args[12] * args[1] + y * args[13] * args[2])
            target = args[3] + 4 * (z * args[4] + y * args[5])
            _row_values(source, target, args[8], (args[9], args[10], args[11]), steps, args[14],
                        args[17], line)  # fmt: skip


@inlined
def _output_of(place: int, tap: int, taps: int, dilation: int, stride: int, size: int) -> int:
    """The output that reads this input place with this tap, or -1."""
    start = place - tap * dilation
    if tap >= taps or start < 0 or start % stride != 0 or start // stride >= size:
        return -1
    return start // stride


@inlined
def _gather_pair(args: Any, target: int, plane: int, first: int, second: int, number: int) -> None:
    """Add what one input row won in two rows of a plane of outputs; -1 means no such row."""
    # A row that does not exist is replaced by the other one, with numbers that no tap has.
    one = number if first >= 0 else -args[19]
    two = number + args[19] if second >= 0 else -args[19]
    row, other = first if first >= 0 else second, second if second >= 0 else first
    gradient, index = args[0] + 4 * plane * args[1], args[3] + 2 * plane * args[4]
    gradients = gradient + 4 * row * args[2], gradient + 4 * other * args[2]
    indices = index + 2 * row * args[5], index + 2 * other * args[5]
    if args[22] != 1:
        gather_strided_row(gradients[0], indices[0], one, target, args[8], args[19], args[22],
                           args[25])  # fmt: skip
        gather_strided_row(gradients[1], indices[1], two, target, args[8], args[19], args[22],
                           args[25])  # fmt: skip
    elif args[19] == 2:
        gather_dense_rows(gradients, indices, (one, two), target, args[8], args[16], 2,
                          args[25])  # fmt: skip
    elif args[19] == 3:
        gather_dense_rows(gradients, indices, (one, two), target, args[8], args[16], 3,
                          args[25])  # fmt: skip
    else:
        gather_dense_rows(gradients, indices, (one, two), target, args[8], args[16], args[19],
                          args[25])  # fmt: skip


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
                plane = _output_of(z + args[12], dz, args[17], args[23], args[20], args[6])
                for dy in range(0, args[18] if plane >= 0 else 0, 2):
                    place, window = y + args[13], args[18]
                    first = _output_of(place, dy, window, args[24], args[21], args[7])
                    second = _output_of(place, dy + 1, window, args[24], args[21], args[7])
                    if first >= 0 or second >= 0:
                        number = (dz * window + dy) * args[19]
                        _gather_pair(args, target, plane, first, second, number)
