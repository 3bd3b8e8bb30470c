"""Direct convolution against sgemm on one core: GFLOP/s of each pass and the ratio, measured alternately.

    python scripts/bench_direct.py [--repeats 7] [--only "->64"]

Counted are the multiplications and additions of the direct method; lanes that only fill a vector do
not count, so a layer of 10 images reaches at most 10/16 with AVX-512.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from kernel_calls import call_of, zeros
from stopwatch import seconds
from threadpoolctl import threadpool_limits
from znnpy_kernels.direct.correlation import VALID, full_words
from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.direct.forward import forward_kernel, gradient_halo
from znnpy_kernels.direct.packed_filters import (
    block_offset,
    group_offset,
    output_groups,
    packed_size,
)
from znnpy_kernels.direct.weight_gradient import (
    OPEN,
    earlier_words,
    weight_gradient_kernel,
    zeros_words,
)
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.lanes import LANES

SLAB = 2000  # output positions of one weight gradient task


@dataclass(frozen=True)
class Layer:
    """A cubic layer: images, filter size, output size, sparsity, planar source."""

    inputs: int
    outputs: int
    taps: int
    size: int
    sparsity: int = 1
    planar: bool = False

    def __str__(self) -> str:
        sparse = f", sparsity {self.sparsity}" if self.sparsity > 1 else ""
        return f"{self.inputs}->{self.outputs}, {self.taps}^3, {self.size}^3{sparse}"

    @property
    def source_lanes(self) -> int:
        return 1 if self.planar else LANES

    @property
    def operations(self) -> int:
        return 2 * self.inputs * self.outputs * self.taps**3 * self.size**3


LAYERS = (
    Layer(16, 16, 3, 64),
    Layer(32, 32, 3, 48),
    Layer(64, 64, 3, 32),
    Layer(80, 80, 3, 32),
    Layer(32, 32, 5, 32),
    Layer(40, 40, 3, 24, 2),
    Layer(40, 40, 3, 24, 4),
    Layer(1, 16, 3, 64, planar=True),
    Layer(1, 10, 3, 35, planar=True),
    Layer(10, 10, 3, 30, 2),
    Layer(10, 10, 3, 20, 4),
    Layer(10, 3, 3, 12, 4),
)


class Images:
    """A cube of blocked images, random, 64-byte aligned, with zero halos along x."""

    def __init__(self, images: int, size: int, lanes: int = LANES, halo: int = 0) -> None:
        self.x = lanes
        self.y = (size + 2 * halo) * lanes
        self.z = size * self.y
        self.block = size * self.z
        self.blocks = -(-images // lanes)
        self.data = zeros(self.blocks * self.block)
        rows = self.data.reshape(self.blocks, size, size, size + 2 * halo, lanes)
        rows[:, :, :, halo : halo + size] = np.random.default_rng(0).random((size, lanes))
        self.address = int(self.data.ctypes.data) + 4 * halo * lanes


class Tasks:
    """Argument blocks of one pass over a layer, and the buffers that they point to."""

    def __init__(self, *buffers: object) -> None:
        self.buffers = buffers
        self.calls: list[Callable[[], None]] = []

    def add(self, kernel: Kernel, **words: int) -> None:
        self.calls.append(call_of(kernel, **words))

    def run(self) -> None:
        for call in self.calls:
            call()


def correlation(layer: Layer, backward: bool) -> Tasks:
    """The forward pass or the data gradient, one task a plane and output group."""
    reach = (layer.taps - 1) * layer.sparsity
    inputs, outputs = layer.inputs, layer.outputs
    size, source_size, halo = layer.size, layer.size + reach, 0
    places, step = VALID, layer.sparsity
    if backward:
        inputs, outputs, size, source_size = outputs, inputs, source_size, size
        apart, limit = (step,) * 3, (source_size,) * 3
        places, step = full_words((1, 1, 1), apart, (0, 0, 0), limit, halo=True), -step
        halo = gradient_halo(layer.taps, layer.sparsity)
    source = Images(inputs, source_size, layer.source_lanes, halo)
    target = Images(outputs, size)
    filters = zeros(packed_size(outputs, inputs, layer.taps**3))
    tasks = Tasks(source, target, filters)
    for z in range(size):
        for group, vectors in enumerate(output_groups(outputs)):
            tasks.add(
                forward_kernel(vectors, source.x),
                source=source.address,
                source_block=source.block,
                source_lanes=source.x,
                channels=inputs,
                filters=filters.ctypes.data + 4 * group_offset(group, inputs, layer.taps**3),
                target=target.address + 8 * group * target.block,
                target_block=target.block,
                target_z=target.z,
                target_y=target.y,
                z0=z,
                z1=z + 1,
                y0=0,
                y1=size,
                width=size,
                accumulate=0,
                **PLAIN,
                **{f"source_{axis}": getattr(source, axis) for axis in "zyx"},
                **{f"tap_{axis}": step * getattr(source, axis) for axis in "zyx"},
                **{f"taps_{axis}": layer.taps for axis in "zyx"},
                **places,
            )
    return tasks


def weight_gradient(layer: Layer) -> Tasks:
    """The weight gradient, one task a slab, output group and input block."""
    source = Images(
        layer.inputs, layer.size + (layer.taps - 1) * layer.sparsity, layer.source_lanes
    )
    gradient = Images(layer.outputs, layer.size)
    taps = layer.taps**3
    packed = zeros(packed_size(layer.outputs, layer.inputs, taps))
    tasks = Tasks(source, gradient, packed)
    planes = max(1, SLAB // layer.size**2)
    rows = min(layer.size, max(1, SLAB // layer.size))
    slabs = [
        (z, min(z + planes, layer.size), y, min(y + rows, layer.size))
        for z in range(0, layer.size, planes)
        for y in range(0, layer.size, rows)
    ]
    for z0, z1, y0, y1 in slabs:
        for group, vectors in enumerate(output_groups(layer.outputs)):
            for block in range(source.blocks):
                target = group_offset(group, layer.inputs, taps)
                target += block_offset(block, vectors, taps, source.x)
                tasks.add(
                    weight_gradient_kernel(vectors, source.x),
                    source=source.address + 4 * block * source.block,
                    source_lanes=source.x,
                    channels=min(source.x, layer.inputs - block * source.x),
                    taps_y=layer.taps,
                    taps_x=layer.taps,
                    tap_row0=0,
                    tap_row1=layer.taps**2,
                    gradient=gradient.address + 8 * group * gradient.block,
                    gradient_block=gradient.block,
                    gradient_z=gradient.z,
                    gradient_y=gradient.y,
                    z0=z0,
                    z1=z1,
                    y0=y0,
                    y1=y1,
                    width=layer.size,
                    target=packed.ctypes.data + 4 * target,
                    **zeros_words((0, OPEN, layer.sparsity), (0, OPEN, layer.sparsity)),
                    **earlier_words([packed.ctypes.data + 4 * target]),
                    **{f"source_{axis}": getattr(source, axis) for axis in "zyx"},
                    **{f"tap_{axis}": layer.sparsity * getattr(source, axis) for axis in "zyx"},
                )
    return tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="best of so many runs")
    parser.add_argument("--only", default="", help="layers whose text contains this")
    options = parser.parse_args()
    matrix = np.random.default_rng(0).random((2048, 2048), np.float32)
    print(f"{'layer':32}{'pass':>16}{'GFLOP/s':>9}{'sgemm':>7}{'ratio':>7}")
    for layer in LAYERS:
        if options.only not in str(layer):
            continue
        passes = {"forward": correlation(layer, False), "weight gradient": weight_gradient(layer)}
        if not layer.planar:
            passes["data gradient"] = correlation(layer, True)
        for name, tasks in passes.items():
            times = [
                (seconds(tasks.run), seconds(np.matmul, matrix, matrix))
                for _ in range(options.repeats)
            ]
            rate, peak = (
                work / min(column) / 1e9
                for work, column in zip(
                    (layer.operations, 2 * 2048**3), zip(*times, strict=True), strict=True
                )
            )
            print(f"{layer!s:32}{name:>16}{rate:9.1f}{peak:7.1f}{rate / peak:7.2f}", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
