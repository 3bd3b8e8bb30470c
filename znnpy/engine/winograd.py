"""Winograd's minimal filtering as tasks: whole slabs of tiles, forward only."""

from __future__ import annotations

from itertools import pairwise

from znnpy_kernels.lanes import LANES
from znnpy_kernels.winograd import CUBE, scratch_floats, winograd
from znnpy_kernels.winograd_filters import SCRATCH_FLOATS, winograd_filters
from znnpy_kernels.winograd_lines import NEW

from znnpy.engine.build import Build
from znnpy.engine.dependencies import Region
from znnpy.engine.fusion import applied_forward, slope_of
from znnpy.engine.parameters import Parameter, Piece
from znnpy.engine.step import Step
from znnpy.engine.tensors import Tensor
from znnpy.errors import PlanError
from znnpy.network.types import Edge, Triple
from znnpy.plan import ConvShape, parts
from znnpy.plan.cost import MEMORY_RATE
from znnpy.plan.parts import TARGET_SECONDS
from znnpy.plan.winograd import takes, winograd_seconds


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Cross-correlation of the source's images with the filters, into the edge's contribution.

    Bias and function of the target are applied where no other edge converges.
    """
    source, target = build.value(edge.source), build.images.contributions[edge.name]
    layout, dilation = build.layout, build.layout.geometry.dilations[edge.name]
    shape = ConvShape.of(edge, layout.network, layout.geometry, layout.batch)
    if not takes(shape) or source.lanes == 1 or target.lanes == 1:
        raise PlanError(f"{edge.name}: winograd takes 3 x 3 x 3 filters between blocks of images")
    node = applied_forward(layout, edge)
    words = {
        "filters": _points(build, edge),
        "inputs": source.images,
        "blocks": target.blocks,
        **_sizes("source_size", source.shape),
        **_sizes("target_size", target.shape),
        **_sizes("dilation", dilation),
        "bias": build.bias_address(node.name, 0) if node else 0,
        "slope": slope_of(node) if node else 1.0,
        "output": 0,
        **build.worker_scratch(scratch_floats(source.images, target.images)),
    }
    seconds = winograd_seconds(shape) / target.batch
    for batch in range(target.batch):
        for low, high in _shares(target, dilation, seconds):
            first, last = _planes(target, dilation, low, high)
            wide = min(source.extent, last + 2 * dilation[target.cut])
            whole = high - low >= dilation[target.cut]
            step.add(
                winograd,
                words
                | _place("source", source, batch)
                | _place("target", target, batch)
                | _tiles(target, dilation, low, high),
                name=edge.name,
                kind="winograd",
                cost=seconds * (high - low) / _tile_planes(target, dilation),
                reads=[
                    _filters_region(edge),
                    *source.regions(batch, first, wide),
                    *(build.bias_reads(node.name) if node else ()),
                ],
                writes=[
                    region if whole else region._replace(lane=low)
                    for region in target.regions(batch, first, last)
                ],
            )


def _tile_planes(target: Tensor, dilation: Triple) -> int:
    """Tiles along the cut axis; the last ones may lie outside."""
    step = dilation[target.cut]
    return -(-target.extent // (NEW * step)) * step


def _shares(target: Tensor, dilation: Triple, seconds: float) -> list[tuple[int, int]]:
    """Ranges of tiles along the cut axis: some slabs of all lattices, or some lattices of one slab."""
    step = dilation[target.cut]
    slabs = _tile_planes(target, dilation) // step
    if seconds / slabs <= 2 * TARGET_SECONDS:
        return [(low * step, high * step) for low, high in parts(slabs, seconds)]
    cuts = [low for low, _ in parts(step, seconds / slabs)] + [step]
    return [(s * step + a, s * step + b) for s in range(slabs) for a, b in pairwise(cuts)]


def _planes(target: Tensor, dilation: Triple, low: int, high: int) -> tuple[int, int]:
    """Planes among which those of some tiles lie."""
    step = dilation[target.cut]
    slab, first = divmod(low, step)
    if high - low >= step:
        return slab * NEW * step, min(target.extent, high // step * NEW * step)
    start = slab * NEW * step + first
    return start, min(target.extent, start + (NEW - 1) * step + high - low)


def _tiles(target: Tensor, dilation: Triple, low: int, high: int) -> dict[str, int]:
    z, y = (-(-n // (NEW * d)) * d for n, d in zip(target.shape[:2], dilation[:2], strict=True))
    if target.cut == 0:
        return {"z0": low, "z1": high, "y0": 0, "y1": y}
    return {"z0": 0, "z1": z, "y0": low, "y1": high}


def _place(name: str, tensor: Tensor, batch: int) -> dict[str, int]:
    return {
        name: tensor.at(batch),
        f"{name}_block": tensor.block_stride,
        f"{name}_z": tensor.z_stride,
        f"{name}_y": tensor.y_stride,
    }


def _sizes(name: str, sizes: Triple) -> dict[str, int]:
    return {f"{name}_{axis}": size for axis, size in zip("zyx", sizes, strict=True)}


def derive(step: Step, build: Build, edge: Edge) -> None:
    """Transformed filters."""
    parameter, points = build.parameters[edge.name], _points(build, edge)
    for piece in parameter.pieces:
        seconds = 4 * piece.floats * CUBE / 27 / MEMORY_RATE
        vectors = piece.width // LANES
        for vector in range(vectors):
            for low, high in parts(piece.inputs, seconds / vectors):
                _transform(step, build, edge, piece, (vector, low, high), points)


def _transform(
    step: Step, build: Build, edge: Edge, piece: Piece, part: tuple[int, int, int], points: int
) -> None:
    parameter, (vector, low, high) = build.parameters[edge.name], part
    inputs = parameter.shape[1]
    first = piece.first_output * inputs + (piece.first_input + low) * piece.width
    step.add(
        winograd_filters,
        {
            "source": parameter.values + 4 * (piece.start + low * piece.width + vector * LANES),
            "source_tap": piece.inputs * piece.width,
            "source_input": piece.width,
            "inputs": high - low,
            "target": points + 4 * (first + vector * LANES),
            "target_point": _point_floats(parameter),
            "target_input": piece.width,
            **build.worker_scratch(SCRATCH_FLOATS),
        },
        name=f"{edge.name} filter tiles",
        kind="transform",
        cost=4 * (high - low) * LANES * CUBE / MEMORY_RATE,
        reads=[parameter.values_region()],
        writes=[_filters_region(edge)._replace(lane=first + vector)],
    )


def _point_floats(parameter: Parameter) -> int:
    outputs, inputs = parameter.shape[:2]
    return inputs * -(-outputs // LANES) * LANES


def _points(build: Build, edge: Edge) -> int:
    floats = CUBE * _point_floats(build.parameters[edge.name])
    return build.scratch(("winograd filters", edge.name), floats)


def _filters_region(edge: Edge) -> Region:
    return Region(("winograd filters", edge.name), 0, 1)
