"""Tasks that only move voxels: dropout, crop and identity edges, and packing of planar inputs into channel blocks."""

from __future__ import annotations

from zlib import crc32

from znnpy_kernels.layers.dropout import dropout
from znnpy_kernels.simd.rows import copy_rows, embed_rows, pack_images, unpack_images

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.tensor_aliases import is_first_addend
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step, counts, floats_of, plane_ranges, rows_of
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.geometry import voxels
from znnpy.network.types import Edge
from znnpy.plan.cost import MEMORY_RATE


def pack_input(step: Step, build: Build, name: str) -> None:
    """Declare the tasks that pack a staged planar input into channel blocks, where it cannot be used in place."""
    what = Identity(name, Pass.FORWARD, Part.COPY)
    source, place = build.staged.inputs[name], build.staged.sources[name]
    _pack(step, source, build.maps.activations[name], (0, 0, 0), what, place)


def unpack_output(step: Step, build: Build, name: str) -> None:
    """Declare the tasks that copy an output node's values to the planar array that is staged for them.

    Planar outputs are left to Python.
    """
    source = build.value(name)
    if source.lanes == 1:
        return
    _, height, width = source.shape
    row, plane, image = width, height * width, voxels(source.shape)
    parts = step.parts(source, 2, build.layout.grain)
    for batch in range(source.batch):
        for block in range(source.blocks):
            for planes in parts:
                z, _, y, _ = source.box(*planes)
                channel = batch * source.channels + block * source.lanes
                step.add(
                    unpack_images,
                    {
                        **rows_of(source, "source", batch, block, planes.low, planes.first),
                        **counts(source, *planes),
                        "place": build.staged.outputs[name],
                        "target": 4 * (channel * image + z * plane + y * row),
                        "target_image": image,
                        "target_z": plane,
                        "target_y": row,
                        "channels": source.block_channels(block),
                        "width": width,
                    },
                    what=Identity(name, Pass.FORWARD, Part.OUTPUT),
                    cost=floats_of(source, planes) * 8 / MEMORY_RATE,
                    reads=source.met(batch, block, *planes),
                    writes=[],
                )


def _pack(
    step: Step,
    source: Tensor,
    target: Tensor,
    offset: tuple[int, int, int],
    what: Identity,
    place: int = 0,
) -> None:
    """Declare the tasks that pack planar channels, from an offset (z, y, x) on, into channel blocks.

    `place`: where the address of an array that lies as `source` does is found at that time; 0: `source` is read itself.
    """
    for batch in range(target.batch):
        for block in range(target.blocks):
            for low, high in plane_ranges(target, 2):
                z, _, y, _ = target.box(low, high)
                first, shift = block * target.lanes, offset[target.cut]
                first_row = source.at(batch, first, z + offset[0], y + offset[1], offset[2])
                channels = range(first, first + target.block_channels(block))
                step.add(
                    pack_images,
                    {
                        "place": place,
                        "source": first_row - (source.address if place else 0),
                        "source_z": source.z_stride,
                        "source_y": source.y_stride,
                        **rows_of(target, "target", batch, block, low),
                        **counts(target, low, high),
                        "source_image": source.block_stride,
                        "channels": target.block_channels(block),
                        "width": target.shape[2],
                    },
                    what=what,
                    cost=_seconds(target, low, high),
                    reads=[source.region(batch, i, low + shift, high + shift) for i in channels],
                    writes=[target.region(batch, block, low, high)],
                )


def dropout_forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks of dropout in training, of a plain copy otherwise."""
    source, target = build.value(edge.source), build.maps.contributions[edge.name]
    if build.layout.training and build.dropping:
        what = Identity(edge.name, Pass.FORWARD, Part.DROPOUT)
        _drop(step, build, edge, source, target, what)
    else:
        _copy(step, source, target, (0, 0, 0), Identity(edge.name, Pass.FORWARD, Part.COPY))


def dropout_backward(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the tasks that drop the same voxels from the gradient: the mask is drawn again, not kept."""
    what = Identity(edge.name, Pass.BACKWARD, Part.DROPOUT)
    _drop(step, build, edge, gradient, build.maps.backward[edge.name], what)


def identity_forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare a copy where the edge's output is not its source's activation itself; else nothing."""
    # Equal tensors are one place in memory: the value is there already.
    moved = build.maps.contributions[edge.name] != build.value(edge.source)
    if moved and not is_first_addend(build.layout, edge):
        crop_forward(step, build, edge)


def identity_backward(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare a copy where the edge's data gradient is not its target's gradient itself; else nothing."""
    # Equal tensors are one place in memory: the gradient is there already.
    if build.maps.backward[edge.name] != gradient:
        crop_backward(step, build, edge, gradient)


def crop_forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that copy what lies inside the offset on both sides."""
    source, target = build.value(edge.source), build.maps.contributions[edge.name]
    # A planar input that leads into blocks is packed on the way.
    move = _copy if source.lanes == target.lanes else _pack
    move(step, source, target, edge.offset, Identity(edge.name, Pass.FORWARD, Part.COPY))


def crop_backward(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the tasks that write the gradient inside and zeros around it."""
    target = build.maps.backward[edge.name]
    depth, height, _ = gradient.shape
    for batch in range(target.batch):
        for block in range(target.blocks):
            for low, high in plane_ranges(target, 2):
                first_z, _, first_y, _ = target.box(low, high)
                step.add(
                    embed_rows,
                    {
                        **rows_of(gradient, "source", batch, block, 0),
                        **rows_of(target, "target", batch, block, low),
                        **counts(target, low, high),
                        "length": target.row,
                        "first_plane": first_z,
                        "first_row": first_y,
                        "inner_planes": depth,
                        "inner_rows": height,
                        "inner_length": gradient.row,
                        "offset_z": edge.offset[0],
                        "offset_y": edge.offset[1],
                        "offset_x": edge.offset[2] * target.lanes,
                    },
                    what=Identity(edge.name, Pass.BACKWARD, Part.COPY),
                    cost=_seconds(target, low, high),
                    # All planes: which of them meet low..high is the kernel's matter, and crops are
                    # cheap.
                    reads=[gradient.region(batch, block)],
                    writes=[target.region(batch, block, low, high)],
                )


def _drop(
    step: Step, build: Build, edge: Edge, source: Tensor, target: Tensor, what: Identity
) -> None:
    for batch in range(target.batch):
        for block in range(target.blocks):
            for low, high in plane_ranges(target, 2):
                first_z, _, first_y, _ = target.box(low, high)
                step.add(
                    dropout,
                    {
                        **rows_of(source, "source", batch, block, low),
                        **rows_of(target, "target", batch, block, low),
                        **counts(target, low, high),
                        "seed": build.staged.seed,
                        # Each edge draws its own mask; `hash` would differ between processes.
                        "edge": crc32(edge.name.encode()),
                        "iteration": build.staged.iteration,
                        # The number within the whole update, so that ranks and microbatches draw
                        # what one process would.
                        "image": build.sample(batch),
                        "first_channel": block * target.lanes,
                        "first_plane": first_z,
                        "first_row": first_y,
                        "width": target.shape[2],
                        "keep": edge.keep,
                    },
                    what=what,
                    cost=_seconds(target, low, high),
                    reads=[source.region(batch, block, low, high), build.staged.given.region()],
                    writes=[target.region(batch, block, low, high)],
                )


def _copy(
    step: Step, source: Tensor, target: Tensor, offset: tuple[int, int, int], what: Identity
) -> None:
    for batch in range(target.batch):
        for block in range(target.blocks):
            for low, high in plane_ranges(target, 2):
                z, _, y, _ = target.box(low, high)
                shift = offset[target.cut]
                step.add(
                    copy_rows,
                    {
                        "source": source.at(batch, block, z + offset[0], y + offset[1], offset[2]),
                        "source_z": source.z_stride,
                        "source_y": source.y_stride,
                        **rows_of(target, "target", batch, block, low),
                        **counts(target, low, high),
                        "length": target.row,
                    },
                    what=what,
                    cost=_seconds(target, low, high),
                    reads=[source.region(batch, block, low + shift, high + shift)],
                    writes=[target.region(batch, block, low, high)],
                )


def _seconds(tensor: Tensor, low: int, high: int) -> float:
    return tensor.plane * (high - low) * 8 / MEMORY_RATE
