"""Tasks of direct correlation, with the filters (convolution) or against them (data gradient, transposed convolution).

An edge's filters are those of a convolution, or, where the edge is transposed, of the convolution that goes
the other way. Along them, voxel i of the target reads voxels i * stride + k * dilation of the source; against
them, it reads voxels (i + before - k * dilation) / stride, where whole: the data gradient of a convolution,
and the forward pass of a transposed one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from math import prod
from typing import NamedTuple

from znnpy_kernels.direct import few_channels_one_tap, one_tap, planar_source
from znnpy_kernels.direct.correlation import NO_LIMIT, VALID, full_words, tap_words
from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.direct.few_channels import few_kernel
from znnpy_kernels.direct.few_channels_spread import spread_kernel, spread_scratch_floats
from znnpy_kernels.direct.forward import forward_kernel
from znnpy_kernels.direct.packed_filters import block_offset, group_offset, output_groups
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.lanes import LANES, REGISTERS
from znnpy_kernels.winograd import rows

from znnpy.engine.convolution.direct.transposed_filters import transposed
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.joined_gradients import applied_backward
from znnpy.engine.memory.regions import Buffer, Region
from znnpy.engine.memory.tensor_aliases import adds
from znnpy.engine.memory.tensors import Planes, Row, Tensor, in_rows, met_range, source_range
from znnpy.engine.tasks.bias_gradients import left_behind, sum_bias, sum_planar_bias
from znnpy.engine.tasks.fusion import applied_forward, function_reads, function_words
from znnpy.engine.tasks.step import Step, by_rows, floats_of
from znnpy.engine.tasks.task_identity import PASS_OF, Identity, Part
from znnpy.layers.types import ONCE
from znnpy.network.types import Edge, Node, Triple
from znnpy.plan import ConvShape, Grain, PassName
from znnpy.plan.algorithms.direct import direct_seconds, few_back_seconds
from znnpy.plan.partition import evenly, light_ranges

CACHED_FILTERS = 1 << 19 if REGISTERS == 32 else 3 << 14
"""Bytes of the filters that a row reads, about, which stay in an L2 cache beside its voxels.

With fewer registers each filter is used for so few voxels that reading it takes half as long as multiplying: then
less, of which a near cache holds a part (docs/design/convolution.md, *Filters from near caches*).
"""
Seen = Callable[[int, int], tuple[int, int]]
"""Planes of the source that planes low..high of the target read."""


@dataclass(frozen=True)
class Correlation:
    """One pass of an edge: what it reads and writes, and `words` of where taps are.

    `which`: the pass that it is. `turned`: filters are read with inputs and outputs exchanged. `together`:
    planes of the target that read the same ones of the source; `rows`: the same of rows. `first`: the voxel of the
    source (z, y, x) from which words count. `across`: rows of the source that rows of a plane read; None: all.
    """

    which: PassName
    source: Tensor
    target: Tensor
    words: Mapping[str, int]
    seen: Seen
    turned: bool
    together: int = 1
    rows: int = 1
    first: Triple = (0, 0, 0)
    across: Seen | None = None


def along(build: Build, which: PassName, edge: Edge, source: Tensor, target: Tensor) -> Correlation:
    """Return the correlation with the filters as they are: the forward pass of a convolution."""
    dilation = build.layout.geometry.dilations[edge.name]
    words, first = source_words(source, edge.stride, edge.size, dilation) | VALID, [0, 0, 0]
    for axis, name in enumerate("zy"):
        before, after = source.beyond[axis]
        if edge.border == "zeros" and edge.stride[axis] == 1 and before + after:
            # Rows and planes of zeros are left out; along x taps on zeros cost less than shorter register blocks.
            size = source.shape[axis] - before - after
            inside = {"origin": -before, "limit": size, "shift": dilation[axis]}
            words |= {f"{word}_{name}": value for word, value in inside.items()}
            first[axis] = before
    return Correlation(
        which,
        source,
        target,
        words,
        lambda low, high: source_range(edge, dilation, target.cut, low, high),
        turned=target.lanes == 1,
        first=(first[0], first[1], 0),
        across=lambda low, high: source_range(edge, dilation, 1 - target.cut, low, high),
    )


def against(
    build: Build, which: PassName, edge: Edge, source: Tensor, target: Tensor, before: Triple
) -> Correlation:
    """Return the full correlation with transposed filters, on each lattice of the target with the taps that meet it.

    `before`: voxels of it that are left out before the target's first.
    """
    dilation = build.layout.geometry.dilations[edge.name]
    places = full_words(
        edge.stride, dilation, before, source.shape, halo=build.layout.reads_halo(edge)
    )
    words = source_words(source, ONCE, edge.size, dilation) | places
    words |= tap_words(places, (source.z_stride, source.y_stride, source.lanes))
    if source.lanes == 1:  # the halo holds zeros for all taps along x
        # Planar gradients have a halo on both sides, so no tap along x has to be left out.
        words |= {"limit_x": NO_LIMIT, "shift_x": 0}
    first = before[target.cut]
    return Correlation(
        which,
        source,
        target,
        words,
        lambda low, high: met_range(edge, dilation, source, low + first, high + first),
        turned=target.lanes > 1,
        # A row's lattices are written by one task, so that planes of one stride stay together.
        together=edge.stride[target.cut],
        rows=edge.stride[1 - target.cut],
    )


def correlate(step: Step, build: Build, edge: Edge, it: Correlation) -> None:
    """Declare all tasks of a pass.

    Where nothing else converges, the forward pass also applies bias and function of the edge's target; the data
    gradient also makes the gradients of its source's function and bias.
    """
    node, found, panels = _applied(build, edge, it.which), list[_Leaf](), _panels(it.target)
    sums = node is not None and it.which == "gradient"  # partial bias gradients, one for each cut
    seconds = _pass_seconds(build.layout.conv_shape(edge), it, sums=sums)
    taps, usual = _taps_of_row(it), build.layout.grain
    # With sums left behind the cuts are leaves, by sizes alone.
    grain = None if sums else usual
    in_turn = [(panel, _sources(it, panel, taps)) for panel in panels]
    cuts = [_cuts(it, panel, seconds, grain, len(turns)) for panel, turns in in_turn]
    leaves = sum(len(turns) * len(cut) for (_, turns), cut in zip(in_turn, cuts, strict=True))
    by_planes = _by_planes(it, edge.size, len(panels), leaves)
    parts = {tuple(planes for batch, planes, _ in cut if batch == 0) for cut in cuts}
    summed: list[Callable[[], None]] = []
    for (panel, turns), cut in zip(in_turn, cuts, strict=True):
        early, partials = cut, None
        # Sums are left behind by the last task alone that goes through a part. Ordered by planes it would come before
        # others of longer parts.
        if not (grain or usual.many or by_planes):
            early = _cuts(it, panel, seconds, usual, len(turns))
        if node and sums:
            # One vector a task and block, added up in order afterwards: bits do not depend on who
            # ran first.
            partials = build.bias_partials(node, panel.first, len(cut) * panel.count)
        found += [
            _Leaf(panel, sources, number, *part, partials if sources.stop == it.source.blocks else None)
            for sources in turns
            for number, part in enumerate(cut if sources.stop == it.source.blocks else early)
        ]  # fmt: skip
        if node and partials:
            summed.append(
                partial(_sum_biases, step, build, node, it.target, panel, partials, len(cut))
            )
    found.sort(key=_voxels if by_planes else _filters_first)
    # Every panel reads the same planes of all blocks.
    seen = cache(partial(_seen, it))
    for _, own in groupby(found, lambda leaf: (leaf.panel, leaf.sources, leaf.planes)):
        # Samples one after the other, whose words change evenly.
        alike = list(own)
        share = sum(leaf.seconds for leaf in alike) * len(alike[0].sources) / it.source.blocks
        for group in build.layout.grain.together(len(alike), share, seconds):
            _emit(step, build, edge, it, node, alike[group.start : group.stop], seen)
    for add_up in summed:
        add_up()
    if len(parts) == 1:
        step.note_cut(it.target, *parts)


def _pass_seconds(shape: ConvShape, it: Correlation, *, sums: bool) -> float:
    """Return the seconds of a pass; `sums`: those that cut it into leaves of sums."""
    few = it.source.lanes == 1 < it.target.lanes
    return few_back_seconds(shape) if sums and few else direct_seconds(shape, it.which)


def _by_planes(it: Correlation, size: Triple, panels: int, leaves: int) -> bool:
    """Return whether panels of the same planes follow each other, which read what the first one brought into caches.

    Else all planes of a panel do, for which its filters stay there.
    """
    images = it.source.channels * prod(it.source.shape) * it.source.batch
    filters = it.source.channels * it.target.channels * prod(size)
    return panels * images > images + filters * leaves // panels


def _sources(it: Correlation, panel: _Panel, taps: int) -> list[range]:
    """Return the blocks of the source whose products a task adds to those of the blocks before.

    Every register block reads the filters of as many taps: a cache holds them for the next one.
    """
    blocks = it.source.blocks
    if min(it.source.lanes, it.target.lanes) == 1:
        return [range(blocks)]
    parts = -(-4 * panel.count * LANES * taps * it.source.channels // CACHED_FILTERS)
    return [range(low, high) for low, high in evenly(blocks, parts)]


def _taps_of_row(it: Correlation) -> int:
    """Return how many taps the voxels of a row meet, about: those of its lattices along z and y."""
    words = it.words
    taps = [-(-words[f"taps_{axis}"] // words[f"lattice_{axis}"]) for axis in "zy"]
    return prod(taps) * words["taps_x"]


def _seen(it: Correlation, blocks: range, batch: int, planes: Planes) -> tuple[Region, ...]:
    """Return the regions of some blocks of the source that planes of the target read."""
    read = Planes(*it.seen(planes.low, planes.high))
    if it.across and planes.last is not None:
        read = Planes(read.low, read.high, *it.across(planes.first, planes.last))
    return tuple(it.source.met_by(batch, blocks, *read))


def _emit(
    step: Step,
    build: Build,
    edge: Edge,
    it: Correlation,
    node: Node | None,
    leaves: Sequence[_Leaf],
    seen: Callable[[range, int, Planes], tuple[Region, ...]],
) -> None:
    """Declare one task, of one leaf or of such that differ by their samples; `seen`: what each reads of the source."""
    (panel, blocks, _, _, planes, _, partials), whole = leaves[0], it.source
    filters, read = _filters(build, edge, it, panel, blocks)
    samples = it.target.each if isinstance(it.target, Row) else 0
    # Bias and function follow the last sum.
    last = node if blocks.stop == whole.blocks else None
    channels = min(whole.channels, blocks.stop * whole.lanes) - blocks.start * whole.lanes
    more = blocks.start > 0 or (it.which == "forward" and adds(build.layout, edge))
    kernel = _kernel(it, panel, more=bool(more))
    written = [
        region
        for leaf in leaves
        for region in blocks_of(it.target, leaf.batch, panel.first, panel.count, *planes)
    ]
    ends = [_epilogue(build, last, it.which, panel, leaf.batch, planes, samples) for leaf in leaves]

    def values(number: int) -> dict[str, float]:
        leaf, (epilogue, _) = leaves[number], ends[number]
        words = {
            **it.words,
            **epilogue,
            "filters": filters,
            "source": whole.at(leaf.batch, blocks.start, *it.first),
            "channels": channels,
            "accumulate": int(more),
        }
        if partials:
            words["bias_gradient"] = partials.address + 4 * LANES * panel.count * leaf.number
        return _words(build, kernel, it, words, panel, leaf.batch, planes)

    step.add_calls(
        kernel,
        range(len(leaves)),
        values,
        what=Identity(edge.name, PASS_OF[it.which], Part.DIRECT),
        cost=sum(leaf.seconds for leaf in leaves) * channels / whole.channels,
        reads=dict.fromkeys(
            [
                read,
                *(region for leaf in leaves for region in seen(blocks, leaf.batch, planes)),
                *(region for _, met in ends for region in met),
                *(written if more else ()),
            ]
        ),
        writes=[
            *written,
            *(region for leaf in leaves for region in left_behind(partials, leaf.number)),
        ],
    )


@dataclass(frozen=True)
class _Panel:
    """Channel blocks, or planar channels, that one task computes: `count` of them from `first` on."""

    number: int
    first: int
    count: int


class _Leaf(NamedTuple):
    """Planes of a sample that a panel computes, cut `number`, from some blocks of the source.

    `partials`: of its bias gradient.
    """

    panel: _Panel
    sources: range
    number: int
    batch: int
    planes: Planes
    seconds: float
    partials: Buffer | None


def _voxels(leaf: _Leaf) -> tuple[int, ...]:
    """Return what leaves are ordered by where all panels follow each other on the same voxels."""
    return leaf.batch, leaf.planes.low, leaf.planes.first


def _filters_first(leaf: _Leaf) -> tuple[int, ...]:
    """Return what leaves are ordered by where all voxels meet the same filters, samples one after the other."""
    return leaf.panel.number, leaf.sources.start, leaf.planes.low, leaf.planes.first, leaf.batch


def _panels(target: Tensor) -> list[_Panel]:
    if target.lanes == 1:
        # Planar channels are few: one task computes all of them.
        return [_Panel(0, 0, target.channels)]
    vectors = output_groups(target.channels)
    return [_Panel(number, 2 * number, count) for number, count in enumerate(vectors)]


def _cuts(
    it: Correlation, panel: _Panel, seconds: float, grain: Grain | None, turns: int
) -> list[tuple[int, Planes, float]]:
    """Return (batch, planes, seconds) of each part of a panel; without a grain, leaves of sums.

    `turns`: tasks that go through a part one after the other, each with some blocks of the source.
    """
    target, cut = it.target, grain.ranges if grain else light_ranges
    # Of one sample and one panel, which reads all voxels in about the time that a block more would take.
    beside = len(_panels(target))
    share = seconds / target.batch * (panel.count + 1) / (target.blocks + beside)
    # Few workers have enough to do: each task may be as long as grain allows, not all that go through a part.
    task = share / turns if grain and not grain.many else share
    ranges = [
        (low * it.together, min(target.extent, high * it.together))
        for low, high in cut(-(-target.extent // it.together), task)
    ]
    found = [Planes(*cut) for cut in ranges]
    if grain and not isinstance(target, Row):
        # So that many workers end together: 18 planes would take 16 of them as long as 32.
        pieces = target.batch * len(ranges) * beside
        shares = grain.rounds(share * target.batch * beside, pieces)
        found = by_rows(target, ranges, task, grain, it.rows, shares)
    all_ = target.plane * target.extent
    return [
        (batch, planes, share * floats_of(target, planes) / all_)
        for batch in range(target.batch)
        for planes in found
    ]


def _filters(
    build: Build, edge: Edge, it: Correlation, panel: _Panel, sources: range
) -> tuple[int, Region]:
    """Return the address of the filters that a panel reads for some blocks of the source, and their region."""
    taps = prod(edge.size)
    offset = 4 * group_offset(panel.number, it.source.channels, taps)
    offset += 4 * block_offset(sources.start, panel.count, taps)
    if it.turned:
        buffer = transposed(build, edge)
        return buffer.address + offset, buffer.region()
    parameter = build.parameters[edge.name]
    if it.target.lanes == 1:
        return parameter.values, parameter.values_region()
    # A panel's filters are as many pieces as the source has blocks.
    first = panel.number * it.source.blocks
    read = parameter.values_region(first + sources.start, first + sources.stop)
    return parameter.values + offset, read


def _kernel(it: Correlation, panel: _Panel, *, more: bool) -> Kernel:
    """Return the kernel of a panel; `more`: it adds to what lies at the target."""
    if it.target.lanes == 1:
        if it.which == "forward" and _has_one_tap(it) and not _origins(it):
            return few_channels_one_tap.KERNELS[it.target.channels - 1]
        return (spread_kernel if _spreads(it) else few_kernel)(it.target.channels)
    if not more and _filters_rows(it):
        return rows.KERNELS[panel.count - 1]
    if _has_one_tap(it):
        return one_tap.KERNELS[panel.count - 1]
    if _has_planar_source(it):
        return planar_source.KERNELS[panel.count - 1]
    # Kernels are compiled for the distance of neighbouring voxels: a constant is an immediate
    # operand.
    return forward_kernel(panel.count, it.words["source_x"])


def _has_one_tap(it: Correlation) -> bool:
    """Return whether each voxel of the target is made of one voxel of the source, at its place or on its lattice."""
    words, source = it.words, it.source
    taps, lattices, origins, apart = (
        tuple(words[f"{word}_{axis}"] for axis in "zyx")
        for word in ("taps", "lattice", "origin", "apart")
    )
    dense = words["source_lanes"] == words["source_x"] == LANES
    # Rows of samples have as many taps as an image has voxels, whose filters `direct.forward` asks for.
    if not dense or taps != lattices or (max(taps) > 1 and isinstance(source, Row)):
        return False
    # What padding crops is never computed, but voxels may lie beyond those that have a tap.
    sizes = zip(source.shape, it.target.shape, lattices, origins, strict=True)
    inside = all((size - 1 + origin) // step < seen for seen, size, step, origin in sizes)
    return inside and max(apart) <= 1


def _origins(it: Correlation) -> bool:
    """Return whether voxels of the target are moved against those of the source, or lie on lattices."""
    steps = (it.words[f"lattice_{axis}"] - 1 for axis in "zyx")
    return any(steps) or any(it.words[f"origin_{axis}"] for axis in "zyx")


def _spreads(it: Correlation) -> bool:
    """Return whether few planar outputs lie on lattices along x."""
    return it.target.lanes == 1 and it.words["lattice_x"] > 1


def _filters_rows(it: Correlation) -> bool:
    """Return whether voxels along x are made by minimal filtering, with two fifths of the products.

    By sizes alone: of flat filters with five taps along x, of few inputs that lie planar, without strides and dilation.
    """
    words, source = it.words, it.source
    if source.lanes > 1 or it.turned or it.which != "forward" or isinstance(it.target, Row):
        return False
    steps = tuple(words[name] for name in ("source_y", "tap_y", "source_x", "tap_x"))
    side_by_side = steps == (source.y_stride, source.y_stride, 1, 1)
    taps = words["taps_z"], words["taps_y"], words["taps_x"]
    return side_by_side and rows.takes(source.channels, taps, it.target.shape[2])


def _has_planar_source(it: Correlation) -> bool:
    """Return whether rows of three taps side by side see voxels of planar images, or zeros around them."""
    words = it.words
    steps = tuple(words[name] for name in ("source_lanes", "source_x", "tap_x", "taps_x"))
    lattices = (words[f"lattice_{axis}"] for axis in "zyx")
    plain = words["shift_x"] == words["origin_x"] == 0 and all(step == 1 for step in lattices)
    return it.which == "forward" and steps == (1, 1, 1, planar_source.TAPS_X) and plain


def _words(
    build: Build,
    kernel: Kernel,
    it: Correlation,
    words: Mapping[str, float],
    panel: _Panel,
    batch: int,
    planes: Planes,
) -> dict[str, float]:
    """Return all argument words of one task."""
    target = _target_words(it.target, batch, panel.first, planes)
    found = {**words, **target}
    if it.target.lanes > 1:
        return found
    if _spreads(it):
        found |= build.worker_scratch(_spread_floats(it))
    # Kernels of few channels read their source by blocks of LANES alone, and know fewer passes.
    return {name: found[name] for name in kernel.fields}


def _spread_floats(it: Correlation) -> int:
    words, target = it.words, it.target
    taps = words["taps_z"], words["taps_y"], words["taps_x"]
    channels = it.source.channels
    return spread_scratch_floats(target.channels, channels, taps, target.shape[2], words)


def _applied(build: Build, edge: Edge, which: PassName) -> Node | None:
    applied = applied_forward if which == "forward" else applied_backward
    return applied(build.layout, edge)


def _epilogue(
    build: Build,
    node: Node | None,
    which: PassName,
    panel: _Panel,
    batch: int,
    planes: Planes,
    samples: int,
) -> tuple[dict[str, float], list[Region]]:
    """Return the words of what is done with finished sums, and what that reads; `samples`: of a target's `Row`."""
    if node is None:
        return PLAIN, []
    function = function_words(build, node)
    if which == "forward":
        bias = build.bias_address(node.name, panel.first * LANES)  # planar channels are one panel
        return function | {"bias": bias}, [
            *build.bias_reads(node.name),
            *function_reads(build, node),
        ]
    output = build.maps.activations[node.name]
    output = in_rows(output, samples) if samples else output
    words = {
        "output": output.at(batch, panel.first),
        "output_block": output.block_stride,
        "output_z": output.z_stride,
        "output_y": output.y_stride,
    }
    return function | words, blocks_of(output, batch, panel.first, panel.count, *planes)


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
    for channel in range(target.channels):
        sum_planar_bias(step, build, node, channel, partials, count, target.channels)


def source_words(source: Tensor, stride: Triple, size: Triple, dilation: Triple) -> dict[str, int]:
    """Return the argument words of the tensor that filters are correlated with."""
    return {
        "source_block": source.block_stride,
        "source_z": source.z_stride * stride[0],
        "source_y": source.y_stride * stride[1],
        "source_x": source.lanes * stride[2],
        "source_lanes": source.lanes,
        "channels": source.channels,
        "taps_z": size[0],
        "taps_y": size[1],
        "taps_x": size[2],
        "tap_z": source.z_stride * dilation[0],
        "tap_y": source.y_stride * dilation[1],
        "tap_x": source.lanes * dilation[2],
    }


def _target_words(target: Tensor, batch: int, block: int, planes: Planes) -> dict[str, int]:
    z0, z1, y0, y1 = target.box(*planes)
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
    }


def blocks_of(
    tensor: Tensor,
    batch: int,
    block: int,
    count: int,
    low: int,
    high: int,
    first: int = 0,
    last: int | None = None,
) -> list[Region]:
    """Return the regions of planes low..high, or rows first..last of them, of some blocks."""
    planes = Planes(low, high, first, last)
    return tensor.met_by(batch, range(block, block + count), *planes)
