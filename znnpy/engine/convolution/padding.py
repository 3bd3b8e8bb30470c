"""Tasks of padding: fill the voxels around feature maps (zeros, replicate, reflect), fold gradients back from there."""

from __future__ import annotations

from dataclasses import replace

from znnpy_kernels.layers.padding import REFLECT, REPLICATE, ZEROS, fold_rows, frame_rows

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.tensor_aliases import hands_back
from znnpy.engine.memory.tensors import Planes, Tensor, firsts, grown
from znnpy.engine.tasks.step import Step, floats_of, plane_ranges, rows_of
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.geometry import voxels
from znnpy.layers.types import BARE, BorderName, Sides
from znnpy.network.types import Edge
from znnpy.plan.cost import MEMORY_RATE

RULES: dict[BorderName, int] = {"zeros": ZEROS, "replicate": REPLICATE, "reflect": REFLECT}


def fill(step: Step, build: Build, name: str) -> None:
    """Declare the tasks that fill the padding around a node's values, and make copies for other kinds of padding.

    Zeros in memory that no other buffer shares are there from the start.
    """
    source = build.value(name)
    for border in build.layout.frames(name):
        target = build.maps.copies.get((name, border), source)
        if target is not source or border != "zeros" or build.passes(target):
            _fill(step, build, source, target, border, Identity(name, Pass.FORWARD, Part.FRAME))


def clear(step: Step, build: Build, name: str) -> None:
    """Declare the tasks that write zeros into the halo of a node's gradient."""
    gradient, network = build.maps.gradients[name], build.layout.network
    # Handed on, the halo is that of the node before, which clears it.
    if gradient.frame != BARE and not any(hands_back(network, e) for e in network.incoming(name)):
        _fill(step, build, gradient, gradient, "zeros", Identity(name, Pass.BACKWARD, Part.FRAME))


def _fill(
    step: Step,
    build: Build,
    source: Tensor,
    target: Tensor,
    border: BorderName,
    what: Identity,
) -> None:
    # In place only the frame is written; a copy gets its voxels as well.
    copies, extent = target is not source, target.extent
    written = voxels(grown(target.shape, target.frame)) - (0 if copies else voxels(target.shape))
    # Eight bytes a float: read and written.
    seconds = written * target.lanes * 8 / MEMORY_RATE
    # Zeros repeat no other voxels: each part has those around it.
    cuts = [*step.cut_of(source)] if border == "zeros" else []
    cuts = cuts or [Planes(*cut) for cut in build.layout.grain.ranges(extent, seconds)]
    step.note_cut(target, cuts)
    for batch in range(target.batch):
        for blocks in build.layout.grain.groups(target.blocks, seconds * target.blocks / len(cuts)):
            for planes in cuts:
                cost = seconds * floats_of(target, planes) / (target.plane * extent)
                ends = source, target, border
                _frame(step, ends, what, cost, batch, blocks, planes)


def _frame(
    step: Step,
    ends: tuple[Tensor, Tensor, BorderName],
    what: Identity,
    cost: float,
    batch: int,
    blocks: range,
    planes: Planes,
) -> None:
    """Declare the task that fills the padding around some planes of some blocks, each at this cost."""
    source, target, border = ends
    read = planes if border == "zeros" else Planes(*_read(target, *planes[:2]))

    def words(block: int) -> dict[str, int]:
        return {
            **rows_of(source, "source", batch, block, 0),
            **rows_of(target, "target", batch, block, 0),
            **_places(target, target.frame, border),
            **_framed_rows(target, *planes),
            "copies": int(target is not source),
        }

    step.add_each(
        frame_rows,
        blocks,
        words,
        what=what,
        cost=cost,
        reads=lambda block: source.met(batch, block, *read),
        writes=lambda block: target.met(batch, block, *planes),
    )


def pad(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks of a pad edge: its source, and padding around it, as voxels of its target."""
    source, whole = build.value(edge.source), build.maps.contributions[edge.name]
    sides = build.layout.padding(edge)
    inner = replace(whole, address=whole.at(0, 0, *firsts(sides)), shape=source.shape, frame=sides)
    before, _ = sides[whole.cut]
    extent, seconds = source.extent, voxels(whole.shape) * whole.lanes * 8 / MEMORY_RATE
    for batch in range(whole.batch):
        for block in range(whole.blocks):
            for low, high in build.layout.grain.ranges(extent, seconds):
                ends = low + before if low else 0, whole.extent if high == extent else high + before
                step.add(
                    frame_rows,
                    {
                        **rows_of(source, "source", batch, block, 0),
                        **rows_of(inner, "target", batch, block, 0),
                        **_places(inner, sides, edge.border),
                        **_framed_rows(inner, low, high),
                        "copies": 1,
                    },
                    what=Identity(edge.name, Pass.FORWARD, Part.COPY),
                    cost=seconds * (high - low) / extent,
                    reads=[source.region(batch, block, *_read(inner, low, high))],
                    writes=[whole.region(batch, block, *ends)],
                )


def _read(target: Tensor, low: int, high: int) -> tuple[int, int]:
    """Return the planes that planes low..high read, with those that padding at their ends repeats or mirrors."""
    extent, (before, after) = target.extent, target.frame[target.cut]
    # Padding planes before the first plane and after the last are copies of planes near them.
    first = max(0, min(low, extent - 1 - after)) if high == extent else low
    return first, high if low else min(extent, max(high, before + 1))


def unpad(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the tasks of a pad edge's data gradient: padding's is added to that of the voxels it repeats."""
    _fold(step, build, edge, gradient)


def fold(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that fold a data gradient with padding into the one without."""
    _fold(step, build, edge, build.back(edge))


def _fold(step: Step, build: Build, edge: Edge, source: Tensor) -> None:
    target, sides = build.maps.backward[edge.name], build.layout.padding(edge)
    before, after = sides[target.cut]
    for batch in range(target.batch):
        for block in range(target.blocks):
            for low, high in plane_ranges(target, 2, build.layout.grain):
                # Planes near a border also take what lies beyond it, so their range is open on that
                # side.
                first = low + before if low > before else 0
                last = high + before if high < target.extent - after else source.extent
                step.add(
                    fold_rows,
                    {
                        "source": source.at(batch, block, *firsts(sides)),
                        "source_z": source.z_stride,
                        "source_y": source.y_stride,
                        **rows_of(target, "target", batch, block, 0),
                        **_places(target, sides, edge.border),
                        **_rows(*target.box(low, high)),
                    },
                    what=Identity(edge.name, Pass.BACKWARD, Part.FOLD),
                    cost=target.plane * (high - low) * 8 / MEMORY_RATE,
                    reads=[source.region(batch, block, first, last)],
                    writes=[target.region(batch, block, low, high)],
                )


def _places(image: Tensor, sides: Sides, border: BorderName) -> dict[str, int]:
    words = {"lanes": image.lanes, "rule": RULES[border]}
    for axis, size, (before, after) in zip("zyx", image.shape, sides, strict=True):
        words |= {f"size_{axis}": size, f"before_{axis}": before, f"after_{axis}": after}
    return words


def _framed_rows(
    tensor: Tensor, low: int, high: int, first: int = 0, last: int | None = None
) -> dict[str, int]:
    """Return the words of the rows of some planes, or of rows of these, with the padding at their ends."""
    z0, z1, y0, y1 = tensor.box(low, high, first, last)
    (over, under), (ahead, behind), _ = tensor.frame
    # Ranges that begin or end with the image take the frame on that side along.
    z0, y0 = z0 or -over, y0 or -ahead
    z1 += under if z1 == tensor.shape[0] else 0
    y1 += behind if y1 == tensor.shape[1] else 0
    return _rows(z0, z1, y0, y1)


def _rows(z0: int, z1: int, y0: int, y1: int) -> dict[str, int]:
    return {"z0": z0, "z1": z1, "y0": y0, "y1": y1}
