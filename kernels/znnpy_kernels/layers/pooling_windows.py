"""Windows of pooling and depthwise convolution on one channel block: taps per output, clipped at the border.

Output voxel o reads input voxels o * stride + tap * dilation - before on each axis, those that lie inside the
channel. Words: byte addresses; `*_z`, `*_y` strides in floats; `planes`, `rows`, `width` in voxels. Forward:
`source` is the block's first voxel; `target` the part's, which is output `first_plane`, `first_row`. Backward:
`gradient` is the first voxel of the whole block of outputs_z x outputs_y x outputs_x voxels, `target` the part's
first, which is input voxel `first_plane`, `first_row`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from znnpy_kernels.machine.abi import words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import VECTOR_BYTES

WINDOW = words(
    "window_z window_y window_x stride_z stride_y stride_x dilation_z dilation_y dilation_x "
    "before_z before_y before_x inputs_z inputs_y inputs_x"
)
FORWARD = words(
    "source source_z source_y target target_z target_y first_plane first_row planes rows width",
    WINDOW,
)
BACKWARD = words(
    "gradient gradient_z gradient_y outputs_z outputs_y outputs_x target target_z target_y "
    "first_plane first_row planes rows width",
    WINDOW,
)


class Row(NamedTuple):
    """One row of outputs.

    `corner`, `target`: addresses of tap 0, 0, 0 of its first window, which may lie outside, and of its first output.
    Taps low..high of its windows lie inside along z and y, and along x of outputs first..last, all of them; without
    any such outputs where `low` and `high` leave taps out. `steps`: bytes from tap to tap along z, y, x.
    """

    corner: int
    target: int
    low_z: int
    high_z: int
    low_y: int
    high_y: int
    first: int
    last: int
    steps: Any


@inlined
def quotient(count: int, step: int) -> int:
    """Return count // step, without a division for the usual step of 1: it would take as long as many taps."""
    return count if step == 1 else count // step


@inlined
def taps_inside(corner: int, taps: int, dilation: int, size: int) -> Any:
    """Return the first tap in 0..size of a window that begins at `corner`, and the one after the last."""
    # Without a division where the corner lies inside, which is nearly everywhere.
    low = 0 if corner >= 0 else quotient(dilation - 1 - corner, dilation)
    high = 0 if corner >= size else min(taps, quotient(size - corner + dilation - 1, dilation))
    return low, max(low, high)


@inlined
def whole_windows(
    outputs: int, taps: int, stride: int, dilation: int, before: int, size: int
) -> Any:
    """Return outputs first..last along an axis whose windows lie inside."""
    first = min(outputs, (before + stride - 1) // stride) if before > 0 else 0
    # The last window's last tap must lie inside; before voxels count as if they were there.
    room = size - 1 - (taps - 1) * dilation + before
    return first, max(first, min(outputs, room // stride + 1)) if room >= 0 else first


@inlined
def row_of(args: Any, z: int, y: int) -> Any:
    """Return row y of plane z of a part's outputs."""
    at = FORWARD
    corner_z = (args[at.first_plane] + z) * args[at.stride_z] - args[at.before_z]
    corner_y = (args[at.first_row] + y) * args[at.stride_y] - args[at.before_y]
    low_z, high_z = taps_inside(corner_z, args[at.window_z], args[at.dilation_z], args[at.inputs_z])
    low_y, high_y = taps_inside(corner_y, args[at.window_y], args[at.dilation_y], args[at.inputs_y])
    first, last = whole_windows(
        args[at.width],
        args[at.window_x],
        args[at.stride_x],
        args[at.dilation_x],
        args[at.before_x],
        args[at.inputs_x],
    )
    steps = (
        4 * args[at.dilation_z] * args[at.source_z],
        4 * args[at.dilation_y] * args[at.source_y],
        VECTOR_BYTES * args[at.dilation_x],
    )
    corner = args[at.source] + 4 * (corner_z * args[at.source_z] + corner_y * args[at.source_y])
    target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
    corner -= VECTOR_BYTES * args[at.before_x]
    return Row(corner, target, low_z, high_z, low_y, high_y, first, last, steps)


@inlined
def inside(args: Any, row: Any) -> Any:
    """Return outputs first..last of a row whose windows lie inside along all axes."""
    at = FORWARD
    taps = args[at.window_z] * args[at.window_y]
    # Where a plane or row of taps is missing no window is whole.
    if (row.high_z - row.low_z) * (row.high_y - row.low_y) < taps:
        return 0, 0
    return row.first, row.last


@inlined
def output_of(place: int, tap: int, dilation: int, stride: int, outputs: int) -> int:
    """Return the output that reads a place, counted from the window of output 0, with a tap; or -1."""
    start = place - tap * dilation
    if start < 0 or start % stride != 0 or start // stride >= outputs:
        return -1
    return start // stride


@inlined
def outputs_reaching(args: Any, tap: int) -> Any:
    """Return outputs first..last of a row of which a tap along x lies inside."""
    at = BACKWARD
    shift = args[at.before_x] - tap * args[at.dilation_x]
    stride = args[at.stride_x]
    first = (shift + stride - 1) // stride if shift > 0 else 0
    room = args[at.inputs_x] - 1 + shift
    return first, max(first, min(args[at.outputs_x], room // stride + 1)) if room >= 0 else first
