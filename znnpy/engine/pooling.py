"""Tasks of max_filter and max_pool edges: maxima, the taps that won, gradients to the winners."""

from __future__ import annotations

from znnpy_kernels.lanes import LANES
from znnpy_kernels.pooling import max_pool_backward, max_pool_forward, max_pool_values

from znnpy.engine.build import Build
from znnpy.engine.dependencies import Region
from znnpy.engine.step import Step, counts, rows_of
from znnpy.engine.tensors import Tensor
from znnpy.geometry import voxels
from znnpy.network.types import Edge, Triple
from znnpy.plan import parts

SECONDS_PER_COMPARE = 4e-11  # one lane of one tap, on one core


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Maxima of one edge; with the winning taps when a backward pass follows."""
    source, target = build.value(edge.source), build.images.contributions[edge.name]
    dilation = build.layout.geometry.dilations[edge.name]
    keep_taps = edge.name in build.images.backward
    for batch in range(target.batch):
        for block in range(target.blocks):
            for low, high in parts(target.extent, _block_seconds(target, edge)):
                wide = source_range(edge, dilation, target.cut, low, high)
                values: dict[str, float] = {
                    **rows_of(source, "source", batch, block, wide[0]),
                    **rows_of(target, "target", batch, block, low),
                    **counts(target, low, high),
                    "width": target.shape[2],
                    **_window(edge, dilation),
                }
                if keep_taps:
                    values |= _taps(build, edge, target, batch, block, low)
                step.add(
                    max_pool_forward if keep_taps else max_pool_values,
                    values,
                    name=edge.name,
                    kind="pool",
                    cost=_block_seconds(target, edge) * (high - low) / target.extent,
                    reads=[source.region(batch, block, *wide)],
                    writes=[
                        target.region(batch, block, low, high),
                        Region((("taps", edge.name), batch, block), low, high),
                    ],
                )


def backward(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Hand each output's gradient to the input voxel that won."""
    target = build.images.backward[edge.name]
    dilation = build.layout.geometry.dilations[edge.name]
    z, y, x = gradient.shape
    for batch in range(target.batch):
        for block in range(target.blocks):
            for low, high in parts(target.extent, _block_seconds(target, edge)):
                first_z, _, first_y, _ = target.box(low, high)
                taps = _taps(build, edge, gradient, batch, block, 0)
                step.add(
                    max_pool_backward,
                    {
                        **rows_of(gradient, "gradient", batch, block, 0),
                        **taps,
                        "outputs_z": z,
                        "outputs_y": y,
                        "outputs_x": x,
                        **rows_of(target, "target", batch, block, low),
                        **counts(target, low, high),
                        "first_plane": first_z,
                        "first_row": first_y,
                        "width": target.shape[2],
                        **_window(edge, dilation),
                    },
                    name=f"{edge.name} backward",
                    kind="pool",
                    cost=_block_seconds(target, edge) * (high - low) / target.extent,
                    reads=[
                        gradient.region(batch, block),
                        Region((("taps", edge.name), batch, block), 0, gradient.extent),
                    ],
                    writes=[target.region(batch, block, low, high)],
                )


def source_range(edge: Edge, dilation: Triple, cut: int, low: int, high: int) -> tuple[int, int]:
    """Planes of the source, along the cut axis, that planes low..high of the target read."""
    reach = (edge.size[cut] - 1) * dilation[cut]
    return low * edge.stride[cut], (high - 1) * edge.stride[cut] + reach + 1


def _block_seconds(tensor: Tensor, edge: Edge) -> float:
    return voxels(tensor.shape) * LANES * voxels(edge.size) * SECONDS_PER_COMPARE


def _window(edge: Edge, dilation: Triple) -> dict[str, int]:
    return {
        f"{word}_{axis}": triple[index]
        for word, triple in (("window", edge.size), ("stride", edge.stride), ("dilation", dilation))
        for index, axis in enumerate("zyx")
    }


def _taps(
    build: Build, edge: Edge, target: Tensor, batch: int, block: int, low: int
) -> dict[str, int]:
    """Words `index`, `index_z`, `index_y` of the winning taps: uint16, dense, two to a float."""
    y_stride = target.row
    z_stride = target.shape[1] * y_stride
    whole = target.shape[0] * z_stride
    base = build.shared(("taps", edge.name), target.batch * target.blocks * whole // 2 + 1)
    z, _, y, _ = target.box(low, low + 1)
    offset = (batch * target.blocks + block) * whole + z * z_stride + y * y_stride
    return {"index": base + 2 * offset, "index_z": z_stride, "index_y": y_stride}
