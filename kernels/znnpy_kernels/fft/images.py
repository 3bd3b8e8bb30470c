"""Kernels from whole images to spectra and back: gather onto the grid, FFTW in place, crop.

A spectrum stands where its grid stood: float32 [z][y][row] with interleaved complex64, x/2 + 1 of
them in a row that is padded to an even number; the whole is padded to a multiple of 16 floats and
all padding is 0. Transforms run axis by axis so that rows and planes that hold nothing, or that
nobody asks for, are left out (pruned FFT; Zlateski et al., ZNNi, arXiv 1606.05688).

`plan` is `znnpy.plan.fftw.FftPlan.address`, an int64 block of the process that describes the grid:
the `PLAN_*` constants are its words. FFTW's execute functions are called by address, without Python.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import floats, longs

# Words of the plan; `znnpy.plan.fftw` writes them.
PLAN_ROWS, PLAN_ROWS_EXECUTE = 0, 1
PLAN_PLANE, PLAN_DEPTH, PLAN_COMPLEX_EXECUTE = 2, 3, 4
PLAN_GRID_Z, PLAN_GRID_Y, PLAN_GRID_X = 5, 6, 7
PLAN_IMAGE_Z, PLAN_IMAGE_Y, PLAN_IMAGE_X = 8, 9, 10
PLAN_ROW, PLAN_FLOATS = 11, 12
PLAN_WORDS = 13


@intrinsic
def execute(typingctx: Any, function: Any, plan: Any, buffer: Any) -> Any:
    """Call one of `fftwf_execute_dft*(plan, buffer, buffer)` by its address: in place."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        word = ir.IntType(64)
        call = ir.FunctionType(ir.VoidType(), [word] * 3)
        # The buffer twice, source and target: in place.
        builder.call(builder.inttoptr(args[0], call.as_pointer()), [args[1], args[2], args[2]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@part
def zero(address: int, count: int) -> None:
    """Set `count` float32 to 0."""
    target = floats(address)
    for i in range(count):
        target[i] = 0.0


@part
def gather_row(source: int, step: int, target: int, count: int, row: int) -> None:
    """Copy `count` voxels, `step` floats apart, and zero the rest of the row."""
    voxels, line = floats(source), floats(target)
    # By a step: voxels of a channel are LANES floats apart in its block.
    for x in range(count):
        line[x] = voxels[x * step]
    for x in range(count, row):
        line[x] = 0.0


@part
def scatter_row(source: int, target: int, step: int, count: int, scale: float, add: int) -> None:
    """Write `count` scaled voxels, `step` floats apart; with `add`, onto what stands there."""
    line, voxels = floats(source), floats(target)
    if add:
        for x in range(count):
            voxels[x * step] += line[x] * scale
    else:
        for x in range(count):
            voxels[x * step] = line[x] * scale


@part
def zero_lanes(target: int, step: int, count: int, lanes: int) -> None:
    """Zero `lanes` floats of each of `count` voxels, `step` floats apart."""
    voxels = floats(target)
    for x in range(count):
        for lane in range(lanes):
            voxels[x * step + lane] = 0.0


@part
def gather_plane(
    source: int, source_y: int, source_x: int, target: int, target_channel: int,
    source_channel: int, channels: int, plan: int,
) -> None:  # fmt: skip
    """Gather one z plane of several channels and transform its rows and columns."""
    words = longs(plan)
    row, height, size = words[PLAN_ROW], words[PLAN_IMAGE_Y], words[PLAN_IMAGE_X]
    for y in range(height):
        # Channels within rows: they share the cache lines of a block's voxels.
        for c in range(channels):
            voxels = source + 4 * (y * source_y + c * source_channel)
            line = target + 4 * (c * target_channel + y * row)
            gather_row(voxels, source_x, line, size, row)
    for c in range(channels):
        plane = target + 4 * c * target_channel
        # Rows beyond the image are zeros, and are not transformed along x.
        zero(plane + 4 * height * row, (words[PLAN_GRID_Y] - height) * row)
        execute(words[PLAN_ROWS_EXECUTE], words[PLAN_ROWS], plane)
        execute(words[PLAN_COMPLEX_EXECUTE], words[PLAN_PLANE], plane)


IMAGE_SPECTRA = words(
    "source source_z source_y source_x source_channel target target_channel channels plan",
)


@kernel(IMAGE_SPECTRA)
def image_spectra(args: Any, worker: int) -> None:
    """Transform `channels` images: gather each onto its zeroed grid, real FFT in place.

    `source`: address of voxel 0, 0, 0 of the first channel; strides z, y, x and from one channel to the
    next (1 within a block of lanes) in floats. `target`: address of the first channel's spectrum,
    64-byte aligned; `target_channel`: floats between spectra, a multiple of 16. `plan`: a forward
    plan (`znnpy.plan.fftw.plan_forward(grid, image)`), whose `image` is the size that is read.
    Forward transform, unnormalised: X[f] = sum_i x[i] exp(-2 pi i f i / N). Tasks on different
    channels write disjoint memory; several channels of a block a task share the reads of its voxels.
    """
    at = IMAGE_SPECTRA
    source, source_z, source_y, source_x, source_channel = (
        args[at.source],
        args[at.source_z],
        args[at.source_y],
        args[at.source_x],
        args[at.source_channel],
    )
    target, target_channel, channels, plan = (
        args[at.target],
        args[at.target_channel],
        args[at.channels],
        args[at.plan],
    )
    words = longs(plan)
    plane, depth = words[PLAN_GRID_Y] * words[PLAN_ROW], words[PLAN_IMAGE_Z]
    for z in range(depth):
        gather_plane(
            source + 4 * z * source_z, source_y, source_x, target + 4 * z * plane, target_channel,
            source_channel, channels, plan,
        )  # fmt: skip
    for c in range(channels):
        spectrum = target + 4 * c * target_channel
        # Planes beyond the image, and the padding behind: zeros in one run.
        zero(spectrum + 4 * depth * plane, words[PLAN_FLOATS] - depth * plane)
        execute(words[PLAN_COMPLEX_EXECUTE], words[PLAN_DEPTH], spectrum)


@part
def scatter_plane(
    source: int, source_channel: int, target: int, target_y: int, target_x: int,
    target_channel: int, channels: int, pad: int, add: int, plan: int,
) -> None:  # fmt: skip
    """Transform one z plane of several channels back, write the voxels wanted, zero pad lanes."""
    words = longs(plan)
    row, height, size = words[PLAN_ROW], words[PLAN_IMAGE_Y], words[PLAN_IMAGE_X]
    # FFTW does not normalise; the factor goes into the copy that is made anyway.
    scale = 1.0 / (words[PLAN_GRID_Z] * words[PLAN_GRID_Y] * words[PLAN_GRID_X])
    for c in range(channels):
        plane = source + 4 * c * source_channel
        # Columns first, then only the rows that are wanted.
        execute(words[PLAN_COMPLEX_EXECUTE], words[PLAN_PLANE], plane)
        execute(words[PLAN_ROWS_EXECUTE], words[PLAN_ROWS], plane)
    for y in range(height):
        for c in range(channels):
            line = source + 4 * (c * source_channel + y * row)
            voxels = target + 4 * (y * target_y + c * target_channel)
            scatter_row(line, voxels, target_x, size, scale, add)
        if pad:
            zero_lanes(target + 4 * (y * target_y + channels), target_x, size, pad)


SPECTRA_IMAGES = words(
    "source source_channel target target_z target_y target_x target_channel channels pad add plan",
)


@kernel(SPECTRA_IMAGES)
def spectra_images(args: Any, worker: int) -> None:
    """Transform `channels` spectra back, scaled by 1/N, and write the first voxels of each grid.

    `source`: address of the first spectrum, 64-byte aligned, **destroyed**; `source_channel`: floats
    between spectra, a multiple of 16. `target`: address of voxel 0, 0, 0 of the first channel; strides
    z, y, x and from one channel to the next in floats. `pad`: lanes behind the last channel that become
    0 (the channels are lanes of one block then), or 0. `add`: 1 adds to what stands there, 0
    overwrites. `plan`: an inverse plan (`znnpy.plan.fftw.plan_inverse(grid, image)`), whose `image`
    is the size that is written; it starts at the grid's origin (see `spectral_product` for why that
    is always enough). Nothing else is written. Tasks on different channels write disjoint memory.
    """
    at = SPECTRA_IMAGES
    source, source_channel, target = args[at.source], args[at.source_channel], args[at.target]
    target_z, target_y, target_x, target_channel = (
        args[at.target_z],
        args[at.target_y],
        args[at.target_x],
        args[at.target_channel],
    )
    channels, pad, add, plan = args[at.channels], args[at.pad], args[at.add], args[at.plan]
    words = longs(plan)
    plane = words[PLAN_GRID_Y] * words[PLAN_ROW]
    for c in range(channels):
        spectrum = source + 4 * c * source_channel
        # Along z for the whole grid; then plane by plane, only those that are wanted.
        execute(words[PLAN_COMPLEX_EXECUTE], words[PLAN_DEPTH], spectrum)
    for z in range(words[PLAN_IMAGE_Z]):
        scatter_plane(
            source + 4 * z * plane, source_channel, target + 4 * z * target_z, target_y, target_x,
            target_channel, channels, pad, add, plan,
        )  # fmt: skip
