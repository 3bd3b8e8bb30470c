"""Direct convolution as tasks: panels of outputs times ranges of the image, all passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.direct.few import few_kernel
from znnpy_kernels.direct.few_gradient import FEW_INPUTS, FEW_OUTPUTS, WIDEST, most_rows
from znnpy_kernels.direct.filters import group_offset, output_groups, packed_size, transpose_filters
from znnpy_kernels.direct.forward import forward_kernel
from znnpy_kernels.direct.gradient import weight_gradient_kernel
from znnpy_kernels.direct.lattices import NO_LIMIT, VALID, full_words, tap_words
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.build import Build
from znnpy.engine.memory.images import reads_halo
from znnpy.engine.memory.parameters import Piece
from znnpy.engine.memory.regions import Buffer, Name, Region, Use
from znnpy.engine.memory.tensors import Tensor, firsts, met_range, source_range
from znnpy.engine.tasks.biases import left_behind, sum_bias, sum_planar_bias
from znnpy.engine.tasks.fusion import applied_backward, applied_forward, slope_of
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step, combine_flat
from znnpy.layers.values import ONCE
from znnpy.network.types import Edge, Node, Triple
from znnpy.plan import PassName, ranges
from znnpy.plan.algorithms.direct import DIRECT_RATE, direct_seconds
from znnpy.plan.cost import MEMORY_RATE

TRANSPOSED = Use("transposed filters")

ORIGIN = (0, 0, 0)
# About 2000 positions of 16 lanes, source and gradient: a slab stays in the L2 cache.
SLAB_BYTES = 1 << 18
MOST_SLABS = 16  # partial weight gradients kept side by side


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Cross-correlation of the source's images with the filters, into the edge's contribution.

    Bias and function of the target are applied where no other edge converges.
    """
    source, target = build.seen(edge), build.images.contributions[edge.name]
    parameter = build.parameters[edge.name]
    dilation = build.layout.geometry.dilations[edge.name]
    node = applied_forward(build.layout, edge)
    few = target.lanes == 1
    blocks = -(-source.images // source.lanes)
    for panel in _panels(target):
        words = {
            **_source_words(source, edge.stride, edge.size, dilation),
            "filters": _transposed(build, edge).address if few else parameter.values,
            **VALID,
            **(PLAIN if node is None else _forward_epilogue(build, node, panel)),
        }
        words["filters"] += 4 * group_offset(panel.number, source.images, prod(edge.size))
        filters = (
            _transposed(build, edge).region(0, target.images)
            if few
            else parameter.values_region(panel.number * blocks, (panel.number + 1) * blocks)
        )
        for batch, low, high, cost in _cuts(target, panel, _seconds(build, edge, "forward")):
            wide = source_range(edge, dilation, target.cut, low, high)
            step.add(
                _kernel(target, panel, words),
                _words(target, words, source.at(batch), batch, panel, low, high),
                what=Identity(edge.name, Pass.FORWARD, Part.DIRECT),
                cost=cost,
                reads=[
                    filters,
                    *source.regions(batch, *wide),
                    *(build.bias_reads(node.name) if node else ()),
                ],
                writes=_blocks_written(target, batch, panel.first, panel.count, low, high),
            )


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Full correlation of the gradient with transposed filters, into what goes back to the source.

    With a stride, on each lattice of the source's voxels with the taps that meet them. The gradients of
    the source's function and bias are made where nothing else reads its images.
    """
    target = build.back(edge)
    dilation = build.layout.geometry.dilations[edge.name]
    before = firsts(build.layout.cropped(edge))
    node = applied_backward(build.layout, edge)
    few = target.lanes == 1
    parameter = build.parameters[edge.name]
    places = full_words(edge.stride, dilation, before, gradient.shape, halo=reads_halo(edge))
    for panel in _panels(target):
        cuts = _cuts(target, panel, _seconds(build, edge, "gradient"), edge.stride[target.cut])
        words = {
            **_source_words(gradient, ONCE, edge.size, dilation),
            "filters": parameter.values if few else _transposed(build, edge).address,
            **places,
            **tap_words(places, (gradient.z_stride, gradient.y_stride, gradient.lanes)),
        }
        if gradient.lanes == 1:  # the halo holds zeros for all taps along x
            words |= {"limit_x": NO_LIMIT, "shift_x": 0}
        words["filters"] += 4 * group_offset(panel.number, gradient.images, prod(edge.size))
        filters = (
            parameter.values_region()
            if few
            else _transposed(build, edge).region(0, gradient.images)
        )
        partials = build.bias_partials(node, panel.first, len(cuts) * panel.count) if node else None
        for leaf, (batch, low, high, cost) in enumerate(cuts):
            first = before[target.cut]
            seen = met_range(edge, dilation, gradient, low + first, high + first)
            epilogue = _backward_epilogue(build, node, batch, panel) if node else PLAIN
            if partials:
                epilogue |= {"bias_gradient": partials.address + 4 * LANES * panel.count * leaf}
            step.add(
                _kernel(target, panel, words),
                _words(target, words | epilogue, gradient.at(batch), batch, panel, low, high),
                what=Identity(edge.name, Pass.BACKWARD, Part.DIRECT),
                cost=cost,
                reads=[
                    filters,
                    *gradient.regions(batch, *seen),
                    *(_values_read(build, node, batch, panel, low, high) if node else ()),
                ],
                writes=[
                    *_blocks_written(target, batch, panel.first, panel.count, low, high),
                    *left_behind(partials, leaf),
                ],
            )
        if node and partials:
            _sum_biases(step, build, node, target, panel, partials, len(cuts))


@dataclass(frozen=True)
class _Panel:
    """Channel blocks, or planar images, that one task makes: `count` of them from `first` on."""

    number: int
    first: int
    count: int


def _panels(target: Tensor) -> list[_Panel]:
    if target.lanes == 1:
        return [_Panel(0, 0, target.images)]
    vectors = output_groups(target.images)
    return [_Panel(number, 2 * number, count) for number, count in enumerate(vectors)]


def _cuts(
    target: Tensor, panel: _Panel, seconds: float, stride: int = 1
) -> list[tuple[int, int, int, float]]:
    """(batch, low, high, seconds) of each task of a panel; planes that read the same ones are together."""
    share = seconds / target.batch * panel.count / target.blocks
    planes = [
        (low * stride, min(target.extent, high * stride))
        for low, high in ranges(-(-target.extent // stride), share)
    ]
    return [
        (batch, low, high, share * (high - low) / target.extent)
        for batch in range(target.batch)
        for low, high in planes
    ]


def _kernel(target: Tensor, panel: _Panel, words: Mapping[str, float]) -> Kernel:
    if target.lanes == 1:
        return few_kernel(target.images)
    return forward_kernel(panel.count, int(words["source_x"]))


def _words(
    target: Tensor,
    words: Mapping[str, float],
    source: int,
    batch: int,
    panel: _Panel,
    low: int,
    high: int,
) -> dict[str, float]:
    """All argument words of one task."""
    found = {**words, "source": source, **_target_words(target, batch, panel.first, low, high)}
    if target.lanes == 1:
        del found["source_x"], found["source_lanes"]
    return found


def _forward_epilogue(build: Build, node: Node, panel: _Panel) -> dict[str, float]:
    bias = build.bias_address(node.name, panel.first * LANES)  # planar images are one panel
    return PLAIN | {"bias": bias, "slope": slope_of(node)}


def _backward_epilogue(build: Build, node: Node, batch: int, panel: _Panel) -> dict[str, float]:
    output = build.images.activations[node.name]
    return PLAIN | {
        "slope": slope_of(node),
        "output": output.at(batch, panel.first),
        "output_block": output.block_stride,
        "output_z": output.z_stride,
        "output_y": output.y_stride,
    }


def _values_read(
    build: Build, node: Node, batch: int, panel: _Panel, low: int, high: int
) -> list[Region]:
    output = build.images.activations[node.name]
    return _blocks_written(output, batch, panel.first, panel.count, low, high)


def _sum_biases(
    step: Step,
    build: Build,
    node: Node,
    target: Tensor,
    panel: _Panel,
    partials: Buffer,
    count: int,
) -> None:
    if target.lanes > 1:
        sum_bias(step, build, node, panel.first, panel.count, partials, count)
        return
    for image in range(target.images):
        sum_planar_bias(step, build, node, image, partials, count, target.images)


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Products of source and gradient summed over positions: a fixed tree over ranges and batch."""
    parameter = build.parameters[edge.name]
    slabs = _slabs(build, edge, gradient)
    leaves = build.partial_gradients(edge.name, len(slabs))
    for index, piece in enumerate(parameter.pieces):
        regions = [leaf.region(index, index + 1) for leaf in leaves]
        places = [leaf.address + 4 * piece.start for leaf in leaves]
        for slab, place, region in zip(slabs, places, regions, strict=True):
            _slab_gradient(step, build, edge, gradient, piece, slab, place, region)
        what = Identity(edge.name, Pass.WEIGHT, Part.SUM)
        combine_flat(step, places, regions, piece.floats, what)


def _slabs(build: Build, edge: Edge, gradient: Tensor) -> list[tuple[int, int, int]]:
    """(batch, low, high): ranges of the gradient that, with their source, fit the L2 cache."""
    planes = gradient.shape[1 - gradient.cut] * gradient.shape[2]
    lanes = gradient.lanes + build.seen(edge).lanes
    bytes_ = gradient.extent * planes * 4 * lanes * prod(edge.stride)
    wanted = min(gradient.extent, -(-bytes_ // SLAB_BYTES), max(1, MOST_SLABS // gradient.batch))
    cuts = [gradient.extent * cut // wanted for cut in range(wanted + 1)]
    return [(batch, *cut) for batch in range(gradient.batch) for cut in pairwise(cuts)]


def _slab_gradient(
    step: Step,
    build: Build,
    edge: Edge,
    gradient: Tensor,
    piece: Piece,
    slab: tuple[int, int, int],
    place: int,
    region: Region,
) -> None:
    """What one slab adds to one piece, by ranges of tap rows: they write side by side."""
    source, (batch, low, high) = build.seen(edge), slab
    dilation = build.layout.geometry.dilations[edge.name]
    wide = source_range(edge, dilation, gradient.cut, low, high)
    few = gradient.lanes == 1
    vectors = gradient.images if few else piece.width // LANES
    source_block, block = piece.first_input // source.lanes, piece.first_output // gradient.lanes
    z0, z1, y0, y1 = gradient.box(low, high)
    kernel, extra, most = _gradient_kernel(edge, source, dilation, vectors, few=few)
    words = _source_words(source, edge.stride, edge.size, dilation) | extra
    del words["taps_z"], words["source_block"]
    if "vectors" in extra:
        del words["source_lanes"]
    width = gradient.images if few else piece.width
    flops = 2.0 * piece.floats / piece.width * width
    flops *= (high - low) * prod(gradient.shape) / gradient.extent
    rows = edge.size[0] * edge.size[1]
    for first, last in ranges(-(-rows // most), flops / DIRECT_RATE):
        first, last = first * most, min(rows, last * most)
        step.add(
            kernel,
            {
                **words,
                "source": source.at(batch, source_block),
                "channels": piece.inputs,
                "tap_row0": first,
                "tap_row1": last,
                "gradient": gradient.at(batch, block),
                "gradient_block": gradient.block_stride,
                "gradient_z": gradient.z_stride,
                "gradient_y": gradient.y_stride,
                "z0": z0,
                "z1": z1,
                "y0": y0,
                "y1": y1,
                "width": gradient.shape[2],
                "target": place,
            },
            what=Identity(edge.name, Pass.WEIGHT, Part.DIRECT),
            cost=flops / DIRECT_RATE * (last - first) / rows,
            reads=[
                source.region(batch, source_block, *wide),
                *_blocks_written(gradient, batch, block, vectors, low, high),
            ],
            writes=[region._replace(strand=first)],
        )


def _gradient_kernel(
    edge: Edge, source: Tensor, dilation: Triple, vectors: int, *, few: bool
) -> tuple[Kernel, dict[str, int], int]:
    """The kernel of a weight gradient, its own words, and how many rows of taps it does at once."""
    if few:
        return FEW_OUTPUTS[vectors - 1], {"vectors": 1, "outputs": vectors}, 1
    if source.lanes == 1 and dilation[2] == 1 and edge.size[2] <= WIDEST:
        kernel = FEW_INPUTS[edge.size[2] - 1]
        return kernel, {"vectors": vectors, "outputs": 0}, most_rows(edge.size[2])
    return weight_gradient_kernel(vectors, source.lanes), {"accumulate": 0}, 1


def derive(step: Step, build: Build, edge: Edge) -> None:
    """Filters with inputs and outputs exchanged, where a pass reads them so."""
    serves = _reads_transposed(build, edge)
    if serves:
        _transpose(step, build, edge, serves)


def _reads_transposed(build: Build, edge: Edge) -> Pass | None:
    """The first pass that reads filters with inputs and outputs exchanged."""
    layer = build.layout.plan.layers[edge.name]
    if layer.forward == "direct" and build.layout.lanes(edge.target) == 1:
        return Pass.FORWARD
    back = edge.name in build.images.backward and layer.gradient == "direct"
    return Pass.BACKWARD if back and build.layout.lanes(edge.source) > 1 else None


def _transpose(step: Step, build: Build, edge: Edge, serves: Pass) -> None:
    parameter = build.parameters[edge.name]
    outputs, inputs, *size = parameter.shape
    seconds = parameter.floats * 16 / MEMORY_RATE
    for low, high in ranges(outputs, seconds):
        step.add(
            transpose_filters,
            {
                "forward": parameter.values,
                "backward": _transposed(build, edge).address,
                "outputs": outputs,
                "inputs": inputs,
                "taps": prod(size),
                "planar": int(build.layout.lanes(edge.target) == 1),
                "o0": low,
                "o1": high,
            },
            what=Identity(edge.name, serves, Part.TRANSPOSE),
            cost=seconds * (high - low) / outputs,
            reads=[parameter.values_region()],
            writes=[_transposed(build, edge).region(low, high)],
        )


def _transposed(build: Build, edge: Edge) -> Buffer:
    outputs, inputs, *size = build.parameters[edge.name].shape
    return build.kept(Name(TRANSPOSED, edge.name), packed_size(inputs, outputs, prod(size)))


def _seconds(build: Build, edge: Edge, which: PassName) -> float:
    return direct_seconds(build.layout.conv_shape(edge), which)


def _source_words(source: Tensor, stride: Triple, size: Triple, dilation: Triple) -> dict[str, int]:
    return {
        "source_block": source.block_stride,
        "source_z": source.z_stride * stride[0],
        "source_y": source.y_stride * stride[1],
        "source_x": source.lanes * stride[2],
        "source_lanes": source.lanes,
        "channels": source.images,
        "taps_z": size[0],
        "taps_y": size[1],
        "taps_x": size[2],
        "tap_z": source.z_stride * dilation[0],
        "tap_y": source.y_stride * dilation[1],
        "tap_x": source.lanes * dilation[2],
    }


def _target_words(target: Tensor, batch: int, block: int, low: int, high: int) -> dict[str, int]:
    z0, z1, y0, y1 = target.box(low, high)
    return {
        "target": target.at(batch, block),
        "target_block": target.block_stride,
        "target_z": target.z_stride,
        "target_y": target.y_stride,
        "z0": z0,
        "z1": z1,
        "y0": y0,
        "y1": y1,
        "width": target.shape[2],
        "accumulate": 0,
    }


def _blocks_written(
    tensor: Tensor, batch: int, block: int, vectors: int, low: int, high: int
) -> list[Region]:
    return [tensor.region(batch, block + i, low, high) for i in range(vectors)]
