"""Time every stage of whole-image FFT convolution on one core: `python scripts/bench_fft.py [layer ...]`.

A layer is IN,OUT,SIZE,INPUT (cubes), such as 40,40,7,24. GFLOP/s count 2.5 N log2 N for a real FFT of N
voxels, 8 for a complex multiply-add, and for the whole pass the operations of direct convolution.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

from kernel_calls import call_of, noise
from stopwatch import best
from znnpy_kernels.fft.filters import filter_spectra, spectra_filters
from znnpy_kernels.fft.fused_products import filter_gradients, filtered_sum
from znnpy_kernels.fft.images import image_spectra, spectra_images
from znnpy_kernels.fft.products import spectral_product
from znnpy_kernels.simd.lanes import LANES

from znnpy.network.types import Triple
from znnpy.plan.fftw import FftPlan, good_size, plan_forward, plan_inverse
from znnpy.plan.twiddle_tables import FilterPlan, plan_filter

LAYERS = ("10,10,3,30", "10,10,5,30", "40,40,3,24", "40,40,5,24", "40,40,7,24")


@dataclass
class Layer:
    """One cubic layer with random contents, batch 1."""

    inputs: int
    outputs: int
    size: int
    side: int

    def __post_init__(self) -> None:
        side = good_size(self.side)
        self.grid: Triple = (side, side, side)
        self.image: Triple = (self.side, self.side, self.side)
        self.out = self.side - self.size + 1
        self.forward: FftPlan = plan_forward(self.grid, self.image)
        self.inverse: FftPlan = plan_inverse(self.grid, (self.out, self.out, self.out))
        self.filters: FilterPlan = plan_filter(self.grid, (self.size, self.size, self.size))
        self.step = self.forward.floats
        self.x = noise(self.inputs * self.step)
        written = max(4, self.outputs)  # `product` and `filters_in` are timed with four columns
        self.y = noise(written * self.step)
        self.w = noise(self.inputs * written * self.step)
        self.blocked = noise(self.side**3 * LANES)
        self.taps = noise(self.size**3 * LANES)

    def images_in(self) -> Callable[[], None]:
        n, x = self.side, self.x.ctypes.data
        return call_of(
            image_spectra, source=self.blocked.ctypes.data, source_z=n * n * LANES,
            source_y=n * LANES, source_x=LANES, source_channel=1, target=x,
            target_channel=self.step, channels=min(4, self.inputs), plan=self.forward.address,
        )  # fmt: skip

    def images_out(self) -> Callable[[], None]:
        n, y = self.out, self.y.ctypes.data
        return call_of(
            spectra_images, source=y, source_channel=self.step, target=self.blocked.ctypes.data,
            target_z=n * n * LANES, target_y=n * LANES, target_x=LANES, target_channel=1,
            channels=min(4, self.outputs), pad=0, add=0, plan=self.inverse.address,
        )  # fmt: skip

    def filters_in(self) -> Callable[[], None]:
        k = self.size
        return call_of(
            filter_spectra, source=self.taps.ctypes.data, source_z=k * k * LANES,
            source_y=k * LANES, source_x=LANES, source_filter=1, target=self.w.ctypes.data,
            target_filter=self.step, filters=4, plan=self.filters.address,
        )  # fmt: skip

    def filters_out(self) -> Callable[[], None]:
        k = self.size
        return call_of(
            spectra_filters, source=self.w.ctypes.data, source_filter=self.step,
            target=self.taps.ctypes.data, target_z=k * k * LANES, target_y=k * LANES,
            target_x=LANES, target_filter=1, filters=4, plan=self.filters.address,
        )  # fmt: skip

    def product(self, outputs: int, part: int) -> Callable[[], None]:
        """`outputs` sums over all inputs, `part` floats of each spectrum."""
        step = self.step
        return call_of(
            spectral_product, a=self.x.ctypes.data, a_term=step, a_row=0, b=self.w.ctypes.data,
            b_term=step, b_column=self.inputs * step, out=self.y.ctypes.data, out_row=0,
            out_column=step, terms=self.inputs, rows=1, columns=outputs, floats=part,
            conjugate=1, add=0,
        )  # fmt: skip

    def fused_sum(self, group: int) -> Callable[[], None]:
        """One output image from all inputs, its filters transformed on the way."""
        step, k = self.step, self.size
        return call_of(
            filtered_sum, images=self.x.ctypes.data, images_term=step, images_row=0,
            source=self.taps.ctypes.data, source_z=k * k * LANES, source_y=k * LANES,
            source_x=LANES, source_term=0, out=self.y.ctypes.data, out_row=0, terms=self.inputs,
            rows=1, conjugate=1, add=0, group=group, scratch=self.w.ctypes.data,
            scratch_worker=0, plan=self.filters.address,
        )  # fmt: skip

    def fused_gradient(self) -> Callable[[], None]:
        """Filter gradients of one input image with up to LANES outputs."""
        step, k = self.step, self.size
        return call_of(
            filter_gradients, a=self.x.ctypes.data, a_term=0, a_filter=0, b=self.y.ctypes.data,
            b_term=0, b_filter=step, terms=1, target=self.taps.ctypes.data,
            target_z=k * k * LANES, target_y=k * LANES, target_x=LANES, target_filter=1,
            filters=min(LANES, self.outputs), scratch=self.w.ctypes.data, scratch_worker=0,
            plan=self.filters.address,
        )  # fmt: skip

    def pairs(self) -> Callable[[], None]:
        """The weight gradient's products: one per pair."""
        step = self.step
        return call_of(
            spectral_product, a=self.x.ctypes.data, a_term=0, a_row=step, b=self.y.ctypes.data,
            b_term=0, b_column=step, out=self.w.ctypes.data, out_row=step,
            out_column=self.inputs * step, terms=1, rows=self.inputs, columns=self.outputs,
            floats=step, conjugate=1, add=0,
        )  # fmt: skip


def report(text: str) -> None:
    """Time each stage of one layer and print it with the totals of the three passes."""
    layer = Layer(*(int(word) for word in text.split(",")))
    inputs, outputs, voxels = layer.inputs, layer.outputs, math.prod(layer.grid)
    fft, multiply = 2.5 * voxels * math.log2(voxels), 4.0 * layer.step
    pairs = inputs * outputs
    print(f"{inputs} -> {outputs}, {layer.size}^3 on {layer.side}^3, grid {layer.grid[0]}^3")

    def show(name: str, function: Callable[[], None], count: float, work: float) -> float:
        each = best(function) / count
        print(f"  {name:32s} {each * 1e6:9.1f} us  {work / each / 1e9:6.1f} GFLOP/s")
        return each

    image = show("image to spectrum", layer.images_in(), min(4, inputs), fft)
    back = show("spectrum to image", layer.images_out(), min(4, outputs), fft)
    taps = show("filter to spectrum", layer.filters_in(), 4, fft)
    gradient = show("spectrum to filter", layer.filters_out(), 4, fft)
    small = min(2**15 // inputs, layer.step) // 32 * 32
    show("product, warm, each 16 floats", layer.product(4, small), inputs * small / 4, 64.0)
    term = show("product, whole, each pair", layer.product(outputs, layer.step), pairs, multiply)
    outer = show("product of pairs, each", layer.pairs(), pairs, multiply)
    fused = min(
        show(f"filters transformed on the way, {g}", layer.fused_sum(g), inputs, multiply + fft)
        for g in (1, 2, 4)
    )
    taken = min(LANES, outputs)
    fused_taps = show("gradients on the way", layer.fused_gradient(), taken, multiply + fft)
    direct = 2.0 * pairs * layer.size**3 * layer.out**3
    for name, seconds in (
        ("forward", inputs * image + pairs * (taps + term) + outputs * back),
        ("data gradient (W known)", outputs * image + pairs * term + inputs * back),
        ("weight gradient (X, DY known)", pairs * (outer + gradient)),
        ("forward, W not kept", inputs * image + pairs * fused + outputs * back),
        ("data gradient, W not kept", outputs * image + pairs * fused + inputs * back),
        ("weight gradient, DW not kept", pairs * fused_taps),
    ):
        print(f"  {name:32s} {seconds * 1e3:9.2f} ms  {direct / seconds / 1e9:6.1f} GFLOP/s direct")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or LAYERS:
        report(chosen)
