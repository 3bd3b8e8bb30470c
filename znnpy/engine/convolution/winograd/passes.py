"""Winograd's minimal filtering as tasks: whole slabs of tiles, forward and data gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.forward import scratch_floats, winograd
from znnpy_kernels.winograd.lines import NEW

from znnpy.engine.convolution.winograd.filters import made, points_of
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.regions import Region
from znnpy.engine.memory.tensors import Tensor, firsts
from znnpy.engine.tasks.biases import left_behind, sum_bias
from znnpy.engine.tasks.fusion import applied_backward, applied_forward, slope_of
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step
from znnpy.errors import PlanError
from znnpy.network.types import Edge, Triple
from znnpy.plan import ConvShape, ranges
from znnpy.plan.algorithms.winograd import backward_shape, refusal, winograd_seconds
from znnpy.plan.ranges import TARGET_SECONDS


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Cross-correlation of the source's images with the filters, into the edge's contribution.

    Bias and function of the target are applied where no other edge converges.
    """
    source, target = build.seen(edge), build.images.contributions[edge.name]
    node, points = applied_forward(build.layout, edge), made(step, build, edge, backward=False)
    words = PLAIN
    if node:
        words = PLAIN | {"bias": build.bias_address(node.name, 0), "slope": slope_of(node)}
    seconds = winograd_seconds(shape_of(build, edge, source, target)) / target.batch
    for task in _tasks(build, edge, source, target, seconds, backward=False):
        wide = task.first, min(source.extent, task.last + task.reach)
        step.add(
            winograd,
            {**words, **task.words},
            what=Identity(edge.name, Pass.FORWARD, Part.WINOGRAD),
            cost=task.seconds,
            reads=[
                points.region(),
                *source.regions(task.batch, *wide),
                *(build.bias_reads(node.name) if node else ()),
            ],
            writes=task.regions(target),
        )


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Full correlation of the gradient with flipped, exchanged filters, into what goes back.

    The gradients of the source's function and bias are made where nothing else reads its images.
    """
    target, before = build.back(edge), firsts(build.layout.cropped(edge))[gradient.cut]
    node, points = applied_backward(build.layout, edge), made(step, build, edge, backward=True)
    shape = backward_shape(shape_of(build, edge, target, gradient))
    seconds = winograd_seconds(shape) / target.batch
    tasks = _tasks(build, edge, gradient, target, seconds, backward=True)
    partials = build.bias_partials(node, 0, len(tasks) * target.blocks) if node else None
    for leaf, task in enumerate(tasks):
        first, last = task.first + before, task.last + before
        seen = max(0, first - task.reach), min(gradient.extent, last)
        words = dict(PLAIN)
        values = build.images.activations[node.name] if node else None
        if node and values:
            words |= {"slope": slope_of(node), **place_words("output", values, task.batch)}
        if partials:
            words["bias_gradient"] = partials.address + 4 * LANES * target.blocks * leaf
        step.add(
            winograd,
            {**words, **task.words},
            what=Identity(edge.name, Pass.BACKWARD, Part.WINOGRAD),
            cost=task.seconds,
            reads=[
                points.region(),
                *gradient.regions(task.batch, *seen),
                *(values.regions(task.batch, task.first, task.last) if values else ()),
            ],
            writes=[*task.regions(target), *left_behind(partials, leaf)],
        )
    if node and partials:
        sum_bias(step, build, node, 0, target.blocks, partials, len(tasks))


def shape_of(build: Build, edge: Edge, source: Tensor, target: Tensor) -> ConvShape:
    """The shape of an edge between images of these tensors; PlanError if it cannot run so."""
    shape = build.layout.conv_shape(edge)
    if refusal(shape.size, shape.stride) or source.lanes == 1 or target.lanes == 1:
        raise PlanError(f"{edge.name}: winograd takes 3 x 3 x 3 filters between blocks of images")
    return shape


@dataclass(frozen=True)
class _Task:
    """Some tiles of one image of the batch: planes `first` to `last` hold what they write.

    `reach`: planes from a target's voxel to the last one of the source that it sees, or the first.
    """

    batch: int
    first: int
    last: int
    reach: int
    strand: int  # -1: it writes whole planes
    seconds: float
    words: Mapping[str, float]

    def regions(self, target: Tensor) -> list[Region]:
        """What it writes."""
        found = target.regions(self.batch, self.first, self.last)
        return [region._replace(strand=self.strand) for region in found]


def _tasks(
    build: Build, edge: Edge, source: Tensor, target: Tensor, seconds: float, *, backward: bool
) -> list[_Task]:
    """All tasks of a pass; `seconds` for one image of the batch."""
    dilation = build.layout.geometry.dilations[edge.name]
    reach = (2 * dilation[0], 2 * dilation[1], 2 * dilation[2])
    z, y, x = firsts(build.layout.cropped(edge))
    outside = (reach[0] - z, reach[1] - y, reach[2] - x)
    words = {
        "filters": points_of(build, edge, backward=backward).address,
        "inputs": source.images,
        "blocks": target.blocks,
        **size_words("source_size", source.shape),
        **size_words("target_size", target.shape),
        **size_words("dilation", dilation),
        **size_words("before", outside if backward else (0, 0, 0)),
        **build.worker_scratch(scratch_floats(source.images, target.images)),
    }
    planes = tile_planes(target, dilation)
    return [
        _Task(
            batch,
            *_planes(target, dilation, low, high),
            reach[target.cut],
            -1 if high - low >= dilation[target.cut] else low,
            seconds * (high - low) / planes,
            words
            | place_words("source", source, batch)
            | place_words("target", target, batch)
            | tile_words(target, dilation, low, high),
        )
        for batch in range(target.batch)
        for low, high in _cuts(target, dilation, seconds)
    ]


def tile_planes(target: Tensor, dilation: Triple) -> int:
    """Tiles along the cut axis; the last ones may lie outside."""
    apart = dilation[target.cut]
    return -(-target.extent // (NEW * apart)) * apart


def _cuts(target: Tensor, dilation: Triple, seconds: float) -> list[tuple[int, int]]:
    """Ranges of tiles along the cut axis: some slabs of all lattices, or some lattices of one slab."""
    apart = dilation[target.cut]
    slabs = tile_planes(target, dilation) // apart
    if seconds / slabs <= 2 * TARGET_SECONDS:
        return [(low * apart, high * apart) for low, high in ranges(slabs, seconds)]
    cuts = [low for low, _ in ranges(apart, seconds / slabs)] + [apart]
    return [(s * apart + a, s * apart + b) for s in range(slabs) for a, b in pairwise(cuts)]


def _planes(target: Tensor, dilation: Triple, low: int, high: int) -> tuple[int, int]:
    """Planes among which those of some tiles lie."""
    apart = dilation[target.cut]
    slab, first = divmod(low, apart)
    if high - low >= apart:
        return slab * NEW * apart, min(target.extent, high // apart * NEW * apart)
    start = slab * NEW * apart + first
    return start, min(target.extent, start + (NEW - 1) * apart + high - low)


def tile_words(target: Tensor, dilation: Triple, low: int, high: int) -> dict[str, int]:
    """The argument words of tiles low..high along the cut axis."""
    z, y = (-(-n // (NEW * d)) * d for n, d in zip(target.shape[:2], dilation[:2], strict=True))
    if target.cut == 0:
        return {"z0": low, "z1": high, "y0": 0, "y1": y}
    return {"z0": 0, "z1": z, "y0": low, "y1": high}


def place_words(name: str, tensor: Tensor, batch: int) -> dict[str, int]:
    """The argument words of a tensor's place and strides."""
    return {
        name: tensor.at(batch),
        f"{name}_block": tensor.block_stride,
        f"{name}_z": tensor.z_stride,
        f"{name}_y": tensor.y_stride,
    }


def size_words(name: str, sizes: Triple) -> dict[str, int]:
    """Three argument words."""
    return {f"{name}_{axis}": size for axis, size in zip("zyx", sizes, strict=True)}
