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

from znnpy_kernels.layers.pooling_rows import (
    LINE,
    gather_dense_rows,
    gather_strided_row,
    pool_columns,
    pool_columns_values,
    pool_windows,
    pool_windows_values,
    scratch_line,
)
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.simd.rows import zero_row

WINDOW = words(
    "window_z window_y window_x stride_z stride_y stride_x dilation_z dilation_y dilation_x"
)


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


MAX_POOL_FORWARD = words(
    "source source_z source_y target target_z target_y index index_z index_y planes rows width",
    WINDOW,
)


@kernel(MAX_POOL_FORWARD)
def max_pool_forward(args: Any, worker: int) -> None:
    """Maxima and winning taps; `planes`, `rows`, `width` measure the part of the output.

    `source` is the first input voxel of the part's first output voxel (the caller offsets it by
    first_plane * stride_z * source_z and so on).
    """
    at = MAX_POOL_FORWARD
    line = scratch_line()
    steps = 4 * args[at.dilation_z] * args[at.source_z], 4 * args[at.dilation_y] * args[at.source_y]
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = args[at.source] + 4 * (
                z * args[at.stride_z] * args[at.source_z]
                + y * args[at.stride_y] * args[at.source_y]
            )
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            index = args[at.index] + 2 * (z * args[at.index_z] + y * args[at.index_y])
            window = args[at.window_z], args[at.window_y], args[at.window_x]
            _row(source, target, index, args[at.width], window, steps, args[at.stride_x],
                 args[at.dilation_x], line)  # fmt: skip


MAX_POOL_VALUES = words(
    "source source_z source_y target target_z target_y planes rows width",
    WINDOW,
)


@kernel(MAX_POOL_VALUES)
def max_pool_values(args: Any, worker: int) -> None:
    """As `max_pool_forward` without the taps, for inference."""
    at = MAX_POOL_VALUES
    line = scratch_line()
    steps = 4 * args[at.dilation_z] * args[at.source_z], 4 * args[at.dilation_y] * args[at.source_y]
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = args[at.source] + 4 * (
                z * args[at.stride_z] * args[at.source_z]
                + y * args[at.stride_y] * args[at.source_y]
            )
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            window = args[at.window_z], args[at.window_y], args[at.window_x]
            _row_values(source, target, args[at.width], window, steps, args[at.stride_x],
                        args[at.dilation_x], line)  # fmt: skip


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
    at = MAX_POOL_BACKWARD
    # A row that does not exist is replaced by the other one, with numbers that no tap has.
    one = number if first >= 0 else -args[at.window_x]
    two = number + args[at.window_x] if second >= 0 else -args[at.window_x]
    row, other = first if first >= 0 else second, second if second >= 0 else first
    gradient, index = (
        args[at.gradient] + 4 * plane * args[at.gradient_z],
        args[at.index] + 2 * plane * args[at.index_z],
    )
    gradients = gradient + 4 * row * args[at.gradient_y], gradient + 4 * other * args[at.gradient_y]
    indices = index + 2 * row * args[at.index_y], index + 2 * other * args[at.index_y]
    outputs, width, taps = args[at.outputs_x], args[at.width], args[at.window_x]
    stride, dilation, numbers = args[at.stride_x], args[at.dilation_x], (one, two)
    if stride != 1:
        gather_strided_row(gradients[0], indices[0], one, target, outputs, taps, stride, dilation)
        gather_strided_row(gradients[1], indices[1], two, target, outputs, taps, stride, dilation)
    elif taps == 2:
        gather_dense_rows(gradients, indices, numbers, target, outputs, width, 2, dilation)
    elif taps == 3:
        gather_dense_rows(gradients, indices, numbers, target, outputs, width, 3, dilation)
    else:
        gather_dense_rows(gradients, indices, numbers, target, outputs, width, taps, dilation)


MAX_POOL_BACKWARD = words(
    "gradient gradient_z gradient_y index index_z index_y outputs_z outputs_y outputs_x target "
    "target_z target_y first_plane first_row planes rows width",
    WINDOW,
)


@kernel(MAX_POOL_BACKWARD)
def max_pool_backward(args: Any, worker: int) -> None:
    """Each input voxel gets the sum of the gradients of the outputs that it won, in order of taps.

    `gradient` and `index` are the addresses of the whole pooled block of outputs_z x outputs_y x
    outputs_x voxels; `target` is the address of this part's first row, plane `first_plane` and
    row `first_row` of the input; `planes`, `rows`, `width` measure the part (whole rows). Every
    voxel of the part is written.
    """
    at = MAX_POOL_BACKWARD
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            zero_row(target, LANES * args[at.width])
            for dz in range(args[at.window_z]):
                plane = _output_of(
                    z + args[at.first_plane],
                    dz,
                    args[at.window_z],
                    args[at.dilation_z],
                    args[at.stride_z],
                    args[at.outputs_z],
                )
                for dy in range(0, args[at.window_y] if plane >= 0 else 0, 2):
                    place, window = y + args[at.first_row], args[at.window_y]
                    first = _output_of(
                        place,
                        dy,
                        window,
                        args[at.dilation_y],
                        args[at.stride_y],
                        args[at.outputs_y],
                    )
                    second = _output_of(
                        place,
                        dy + 1,
                        window,
                        args[at.dilation_y],
                        args[at.stride_y],
                        args[at.outputs_y],
                    )
                    if first >= 0 or second >= 0:
                        number = (dz * window + dy) * args[at.window_x]
                        _gather_pair(args, target, plane, first, second, number)
