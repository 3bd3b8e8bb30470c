"""Time the tile transforms on one core, next to sgemm: `python scripts/bench_tiles.py [SIZE ...]`.

A size is a cube's side, or z,y,x. GFLOP/s count 2.5 N log2 N for a real FFT of N points, for the filters
as well, though few of their points are taps. All tiles of a run lie in images and spectra of about
`--megabytes` each, so that smaller figures stand for a cache and larger ones for memory.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

from kernel_calls import call_of, noise
from stopwatch import best, sgemm
from threadpoolctl import threadpool_limits
from znnpy_kernels.fft.codelets import SIZES as TILE_SIZES
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.filter_tiles import filter_gradient_tiles, filter_tiles
from znnpy_kernels.spectral.tile_spectra import scratch_floats, tile_images, tile_spectra

SIZES = (*map(str, TILE_SIZES[1:]), "1,16,16", "1,32,32", "8,16,16")
Triple = tuple[int, int, int]


def words(name: str, values: Triple) -> dict[str, int]:
    """One word for each axis."""
    return {f"{name}_{axis}": value for axis, value in zip("zyx", values, strict=True)}


@dataclass
class Case:
    """Overlapping tiles of images with `taps` a side, and their spectra."""

    size: Triple
    taps: int
    blocks: int
    megabytes: float

    def __post_init__(self) -> None:
        z, y, x = self.size
        self.frequencies = z * y * (x // 2 + 1)
        each = self.frequencies * 2 * LANES * 4 * self.blocks
        wanted = max(1, round(self.megabytes * 1e6 / each))
        side = max(1, round(wanted ** (1 / 2 if z == 1 else 1 / 3)))
        self.grid: Triple = (1 if z == 1 else side, side, side)
        self.tiles = math.prod(self.grid)
        self.tile = self.blocks * 2 * LANES
        self.frequency = self.tiles * self.tile
        if self.frequency // (2 * LANES) % 2 == 0:
            self.frequency += 2 * LANES
        self.spectra = noise(self.frequencies * self.frequency)
        self.kernel: Triple = (1 if z == 1 else self.taps, self.taps, self.taps)
        self.useful: Triple = (z - self.kernel[0] + 1, y - self.taps + 1, x - self.taps + 1)
        depth, height, width = (
            m * tiles + k - 1
            for m, tiles, k in zip(self.useful, self.grid, self.kernel, strict=True)
        )
        self.image: Triple = (depth, height, width)
        self.voxels = depth * height * width * LANES
        self.images = noise(self.blocks * self.voxels)
        self.filters = noise(self.tiles * math.prod(self.kernel) * LANES)
        self.scratch = noise(scratch_floats(self.size))

    def _row(self) -> dict[str, int]:
        return {
            "blocks": self.blocks, **words("tiles", self.grid),
            "tile0": 0, "tile1": self.tiles, **words("origin", (0, 0, 0)),
            **words("step", self.useful), **self._tile(),
        }  # fmt: skip

    def _tile(self) -> dict[str, int]:
        return {
            **words("size", self.size), "scratch": self.scratch.ctypes.data, "scratch_worker": 0,
        }  # fmt: skip

    def _spectra(self, end: str, each: str) -> dict[str, int]:
        return {
            end: self.spectra.ctypes.data, f"{end}_frequency": self.frequency,
            f"{end}_{each}": self.tile,
        }  # fmt: skip

    def _images(self, end: str) -> dict[str, int]:
        row = self.image[2] * LANES
        return {
            end: self.images.ctypes.data, f"{end}_block": self.voxels,
            **words(end, (self.image[1] * row, row, LANES)), **words("limit", self.image),
        }  # fmt: skip

    def forward(self) -> Callable[[], None]:
        return call_of(
            tile_spectra, **self._row(), **self._images("source"), source_lane=1, channels=0,
            **words("count", self.size), **self._spectra("target", "tile"),
            target_block=2 * LANES,
        )  # fmt: skip

    def inverse(self) -> Callable[[], None]:
        return call_of(
            tile_images, **self._row(), **self._spectra("source", "tile"),
            source_block=2 * LANES, **self._images("target"), **words("first", (0, 0, 0)),
            **words("count", self.useful), scale=1e-3, bias=0, channels=0, relu=0,
        )  # fmt: skip

    def _taps(self, end: str) -> dict[str, int]:
        x = LANES
        steps = (self.kernel[1] * self.kernel[2] * x, self.kernel[2] * x, x)
        return {
            end: self.filters.ctypes.data, f"{end}_input": math.prod(self.kernel) * LANES,
            "inputs": self.tiles, **words(end, steps), **words("taps", self.kernel),
            "first": 0, "each": self.tiles, f"{end}_each": 0,
        }  # fmt: skip

    def filters_in(self) -> Callable[[], None]:
        return call_of(
            filter_tiles, **self._taps("source"), source_lane=1, lanes=LANES,
            **self._spectra("target", "input"), conjugate=0, **self._tile(),
        )  # fmt: skip

    def filters_out(self) -> Callable[[], None]:
        return call_of(
            filter_gradient_tiles, **self._spectra("source", "input"), **self._taps("target"),
            accumulate=0, scale=1e-3, **self._tile(),
        )  # fmt: skip


def report(text: str, taps: int, blocks: int, megabytes: float) -> None:
    """One line: GFLOP/s of each kernel and the time of a tile of LANES images."""
    sides = [int(side) for side in text.split(",")]
    size = (sides * 3)[:3]
    case = Case((size[0], size[1], size[2]), taps, blocks, megabytes)
    points = math.prod(size)
    work = 2.5 * points * math.log2(points) * LANES * case.tiles
    line = f"{text:>8s} {case.tiles:5d} tiles"
    for name, function, count in (
        ("forward", case.forward(), blocks),
        ("inverse", case.inverse(), blocks),
        ("filters", case.filters_in(), 1),
        ("gradients", case.filters_out(), 1),
    ):
        seconds = best(function)
        rate = work * count / seconds / 1e9
        line += f" | {name} {rate:5.0f} GFLOP/s {seconds / count / case.tiles * 1e6:7.1f} us"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sizes", nargs="*", default=SIZES)
    parser.add_argument("--taps", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--megabytes", type=float, default=8.0)
    chosen = parser.parse_args()
    with threadpool_limits(1):
        print(f"sgemm {sgemm():.0f} GFLOP/s; {LANES} lanes")
        for text in chosen.sizes:
            report(text, chosen.taps, chosen.blocks, chosen.megabytes)


if __name__ == "__main__":
    main()
