"""Weight gradient of direct convolution with one output voxel: outer products, added over samples.

Output channels of one voxel (layers that see their whole field) give outer products of a voxel's output
gradients and all that the filters saw. A slab would be one of them, of as many floats as there are filters;
here up to TOGETHER samples are added in registers, by the tree by which slabs of one sample each are added in
memory, with the same roundings.

Argument words. Addresses in bytes; steps and strides in floats; all else counts.

    source, source_batch        voxel of the first sample's input block read by tap 0; step between samples
    channels                    input channels in this block
    taps_y, taps_x, tap_z, tap_y, tap_x, tap_row0, tap_row1    as in `weight_gradient`
    gradient, gradient_block, gradient_batch    the voxel of the output group's first block; steps
    outputs                     vectors of the output group: 1 or 2
    samples                     1 to TOGETHER
    target                      packed weight gradient of this input block and output group, at tap 0; overwritten
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import fma, load, splat, store

# Three levels of the tree in registers: an eighth of the memory that partial sums of single samples would take.
TOGETHER = 8
"""Samples that are added at once: a node of the tree."""

AT = words(
    "source source_batch channels taps_y taps_x tap_z tap_y tap_x tap_row0 tap_row1 "
    "gradient gradient_block gradient_batch outputs samples target"
)


@inlined
def _one(args: Any, source: int, gradient: int, sample: int) -> Any:
    voxel = floats(source + 4 * sample * args[AT.source_batch])[0]
    # An fma onto 0, as `weight_gradient` makes it: the same roundings, signs of zeros included.
    return fma(load(gradient + 4 * sample * args[AT.gradient_batch]), splat(voxel), splat(0.0))


@inlined
def _two(args: Any, source: int, gradient: int, first: int) -> Any:
    total = _one(args, source, gradient, first)
    # Leaf i with i + 1, pairs with pairs: the shape of `tree` in `engine/tasks/step.py`.
    if first + 1 < args[AT.samples]:
        total = total + _one(args, source, gradient, first + 1)
    return total


@inlined
def _four(args: Any, source: int, gradient: int, first: int) -> Any:
    total = _two(args, source, gradient, first)
    if first + 2 < args[AT.samples]:
        total = total + _two(args, source, gradient, first + 2)
    return total


@inlined
def _eight(args: Any, source: int, gradient: int) -> Any:
    total = _four(args, source, gradient, 0)
    if args[AT.samples] > 4:
        total = total + _four(args, source, gradient, 4)
    return total


@kernel(AT)
def outer_weight_gradient(args: Any, worker: int) -> None:
    """Rows of taps of one input block and output group. Words: see the module."""
    target = args[AT.target]
    target += 4 * LANES * args[AT.outputs] * args[AT.channels] * args[AT.taps_x] * args[AT.tap_row0]
    tap_z, tap_y = 0, args[AT.tap_row0]  # by steps: a division by a variable might raise
    while tap_y >= args[AT.taps_y]:
        tap_y -= args[AT.taps_y]
        tap_z += 1
    for _ in range(args[AT.tap_row0], args[AT.tap_row1]):
        for tap_x in range(args[AT.taps_x]):
            offset = tap_z * args[AT.tap_z] + tap_y * args[AT.tap_y] + tap_x * args[AT.tap_x]
            for image in range(args[AT.channels]):
                source = args[AT.source] + 4 * (offset + image)
                for output in range(args[AT.outputs]):
                    gradient = args[AT.gradient] + 4 * output * args[AT.gradient_block]
                    store(target, _eight(args, source, gradient))
                    target += VECTOR_BYTES
        tap_y += 1
        if tap_y == args[AT.taps_y]:
            tap_y = 0
            tap_z += 1
