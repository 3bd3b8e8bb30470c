"""Measure one layer by every algorithm, task by task, and let the plan choose."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.compile import compile_all
from znnpy_kernels.machine.abi import Kernel

from znnpy.data.memory import readable
from znnpy.engine.convolution import passes as convolution
from znnpy.engine.memory.arena import Arena, aligned_bytes
from znnpy.engine.memory.arrays import Floats
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.images import Layout
from znnpy.engine.memory.regions import Buffer
from znnpy.engine.report import COMPILING, MEASURING, Report
from znnpy.engine.tasks.dependencies import connect, last_group
from znnpy.engine.tasks.identity import PASS_OF, Identity, Part, Pass, identities
from znnpy.engine.tasks.step import Step
from znnpy.geometry import Geometry, fit
from znnpy.graph import TaskGraph
from znnpy.network.types import Edge, Network, Node, Triple
from znnpy.plan import Choice, ConvShape, Costs, LayerPlan, Method, Plan, candidates, choose
from znnpy.plan.choose import (
    ESTIMATED,
    MEASURED,
    UNMEASURED,
    close_calls,
    estimated,
    estimated_costs,
    estimated_seconds,
)
from znnpy.plan.settle import Look, settle
from znnpy.plan.types import COST_PARTS, CostPart, PartSeconds, wanted
from znnpy.plan.wisdom import recall, remember
from znnpy.scheduler import SerialExecutor
from znnpy.scheduler.cores import available_cores

MOST_SECONDS = 0.15  # of all passes, by estimate: what takes longer is measured on smaller images
SMALLEST = 24  # voxels along an axis
FLUSHED_BYTES = 1 << 25  # read between runs: in a network other layers use the caches as well
# What passes of an edge share, by the tasks that make it.
SHARED_PARTS: Mapping[Part, CostPart] = {
    Part.IMAGE_SPECTRA: "images",
    Part.KEPT_TILES: "images",
    Part.FILTER_SPECTRA: "filters",
    Part.DENSE_FILTERS: "filters",
    Part.FILTER_TILES: "filters",
    Part.OUTPUT_SPECTRA: "gradients",
    Part.OUTPUT_TILES: "gradients",
}
OF_NO_EDGE = {Part.GATE, Part.BIAS}
_NAME_OF: Mapping[Pass, CostPart] = {which: name for name, which in PASS_OF.items()}


def planned(
    network: Network,
    geometry: Geometry,
    batch: int,
    conv: Choice,
    record: Mapping[str, Mapping[str, Any]] | None,
    training: bool = True,
    report: Report | None = None,
    measuring: bool = True,
    max_memory: int | None = None,
) -> Plan:
    """The plan of a saved record, or a chosen one, measured where that matters.

    Measuring takes `max_memory` bytes at most. Without `measuring`, what was measured here before and estimates
    choose.
    """
    if record is not None:
        return Plan.from_record(record, network)
    if not measuring:
        costs = partial(known_or_estimated, max_memory=max_memory)
        return choose(network, geometry, batch, conv, costs, training)
    if conv == "auto":
        shapes = close_calls(network, geometry, batch, training)
        measure_all(shapes, report, max_memory)
        _tell_left_out(shapes, max_memory)
    costs = partial(measured, max_memory=max_memory)
    return choose(network, geometry, batch, conv, costs, training)


def measure_all(
    shapes: Sequence[ConvShape], report: Report | None = None, max_memory: int | None = None
) -> None:
    """Measure what wisdom does not know yet, after compiling all that takes at once."""
    unknown = {
        shape: fitting
        for shape in shapes
        if known(shape, max_memory) is None
        and (fitting := _fitting(shape, candidates(shape), max_memory))
    }
    kernels: set[Kernel] = set()
    for shape, methods in unknown.items():
        for method in methods:
            kernels |= _kernels(_smaller(shape, method, max_memory), method)
    tell = partial(report, COMPILING) if report else None
    compile_all(kernels, available_cores(), tell)
    for done, shape in enumerate(unknown):
        if report:
            report(MEASURING, done, len(unknown))
        measured(shape, max_memory)
    if report and unknown:
        report(MEASURING, len(unknown), len(unknown))


def _tell_left_out(shapes: Sequence[ConvShape], max_memory: int | None) -> None:
    """Warn of what `max_memory` keeps from being measured, once for all layers."""
    said = []
    for shape in shapes:
        costs, why = measured(shape, max_memory)
        images = f"{shape.inputs} to {shape.outputs} images"
        if why == ESTIMATED:
            said.append(f"{images} by any algorithm (estimates choose)")
        elif left := [str(method) for method in candidates(shape) if method not in costs]:
            said.append(f"{images} by {', '.join(left)} (others are chosen among)")
    if said:
        warnings.warn(
            f"max_memory of {readable(max_memory or 0)} has no room to measure layers of {'; '.join(said)}",
            stacklevel=3,
        )


def measured(shape: ConvShape, max_memory: int | None = None) -> tuple[Costs, str]:
    """Seconds by part of one layer on one core, from wisdom or measured now and remembered; and which they are.

    What does not fit into `max_memory` bytes is measured on smaller or fewer images. Methods that do not fit even so
    are left out: the network would hardly fit with them. Where none fits, all are estimated.
    """
    if found := known(shape, max_memory):
        return found, MEASURED
    methods, key = candidates(shape), _key(shape)
    if max_memory is None or _as_without_limit(shape, methods, max_memory):
        return remember(key, timed(shape, methods)), MEASURED
    if fitting := _fitting(shape, methods, max_memory):
        return remember(_within(key, max_memory), timed(shape, fitting, max_memory)), MEASURED
    return estimated_costs(shape, methods), ESTIMATED


def known(shape: ConvShape, max_memory: int | None = None) -> Costs | None:
    """Seconds by part as they were measured on this machine; None if they never were.

    What was measured without a limit serves any, for the methods that fit into it; else what was with this one.
    """
    found = recall(key := _key(shape))
    if found and max_memory is not None:
        found = {it: found[it] for it in _fitting(shape, list(found), max_memory)}
    return found or (None if max_memory is None else recall(_within(key, max_memory)))


def known_or_estimated(shape: ConvShape, max_memory: int | None = None) -> tuple[Costs, str]:
    """Seconds by part as measured before, else by estimates; and which they are."""
    if found := known(shape, max_memory):
        return found, MEASURED
    methods = candidates(shape)
    possible = any(_fits(shape, method, max_memory) for method in methods)
    return estimated_costs(shape, methods), UNMEASURED if possible else ESTIMATED


def _key(shape: ConvShape) -> str:
    return f"{shape!r} by {', '.join(map(str, candidates(shape)))}"


def _within(key: str, max_memory: int) -> str:
    return f"{key} in {max_memory} bytes"


def _kernels(shape: ConvShape, method: Method) -> set[Kernel]:
    layout, edge = _alone(shape, method)
    return {task.kernel for task in _emit(Build.new(Arena(), layout, 0), edge, shape).tasks}


def timed(shape: ConvShape, methods: Sequence[Method], max_memory: int | None = None) -> Costs:
    """Time methods in turns, in the same memory; what was timed on smaller images is scaled.

    Each of them must fit into `max_memory` bytes; what they leave of it flushes caches.
    """
    smaller = {method: _smaller(shape, method, max_memory) for method in methods}
    needed = max(_bytes(less, method) for method, less in smaller.items())
    flushed = FLUSHED_BYTES if max_memory is None else min(FLUSHED_BYTES, max_memory - needed)
    memory = aligned_bytes(needed)
    memory.fill(0)  # now, rather than in the first run
    others = np.zeros(flushed // 4, np.float32)
    trials = {method: _Trial(smaller[method], method, memory, others) for method in methods}
    scales = {method: _scales(shape, smaller[method], method) for method in methods}

    def look(method: Method) -> Look:
        found = trials[method].look()
        return {part: seconds * scales[method][part] for part, seconds in found.items()}

    return settle(shape, methods, look)


def _fitting(
    shape: ConvShape, methods: Sequence[Method], max_memory: int | None
) -> Sequence[Method]:
    return [method for method in methods if _fits(shape, method, max_memory)]


def _fits(shape: ConvShape, method: Method, max_memory: int | None) -> bool:
    """Whether a method can be measured in so many bytes, if only on the least that images shrink to."""
    if max_memory is None:
        return True
    while (less := _shrunk(shape)) != shape:
        shape = less
    return _bytes(shape, method) <= max_memory


def _as_without_limit(shape: ConvShape, methods: Sequence[Method], max_memory: int) -> bool:
    """Whether so many bytes are enough to measure as one would without a limit."""
    most = max(_bytes(_smaller(shape, method), method) for method in methods)
    return most + FLUSHED_BYTES <= max_memory


def _scales(shape: ConvShape, smaller: ConvShape, method: Method) -> PartSeconds:
    """How much longer each part takes on the whole shape; what has no estimate as the forward pass."""
    whole, less = estimated(shape, method), estimated(smaller, method)
    scales = {part: seconds / less[part] for part, seconds in whole.items() if less[part]}
    return dict.fromkeys(COST_PARTS, scales["forward"]) | scales


def _smaller(shape: ConvShape, method: Method, max_memory: int | None = None) -> ConvShape:
    """The shape with smaller images where measuring a method would take too long, and fewer for too much memory.

    Other images may fill tiles otherwise, so what is fast is measured as it is.
    """
    while estimated_seconds(shape, method) > MOST_SECONDS and max(shape.places) > SMALLEST:
        shape = _shorter(shape)
    if max_memory is None:
        return shape
    most = max_memory - _set_aside(max_memory)
    while (less := _shrunk(shape)) != shape and _bytes(shape, method) > most:
        shape = less
    return shape


def _shrunk(shape: ConvShape) -> ConvShape:
    """The shape with smaller images, or half of the smallest ones; in the end the same."""
    if max(shape.places) > SMALLEST:
        return _shorter(shape)
    return replace(shape, batch=max(1, shape.batch // 2))


def _set_aside(max_memory: int) -> int:
    """What images leave to flush caches with as long as they can be smaller."""
    return min(FLUSHED_BYTES, max_memory // 2)


def _shorter(shape: ConvShape) -> ConvShape:
    """The shape with smaller images along their longest axis."""
    longest = shape.places.index(max(shape.places))
    less = shape.places[longest] - max(SMALLEST, shape.places[longest] * 3 // 4)
    by = less, less * shape.stride[longest]  # of the small images, and of the large ones
    source, target = reversed(by) if not shape.transposed else by
    return replace(
        shape,
        source=_less(shape.source, longest, source),
        target=_less(shape.target, longest, target),
    )


def _less(size: Triple, axis: int, by: int) -> Triple:
    z, y, x = (extent - by * (number == axis) for number, extent in enumerate(size))
    return z, y, x


class _Trial:
    """Timed runs of one layer by one method, in memory that others use in turns, as they do what flushes caches."""

    def __init__(
        self, shape: ConvShape, method: Method, memory: NDArray[np.uint8], others: Floats
    ) -> None:
        layout, edge = _alone(shape, method)
        build = Build.new(Arena(memory), layout, 0)
        step = _emit(build, edge, shape)
        compile_all({task.kernel for task in step.tasks}, 1)
        graph = connect([step.tasks], _given(build, edge)).build()
        self._executor = SerialExecutor(graph, record=graph.size)
        self._seconds = np.zeros(graph.size)
        self._tasks = _by_part(graph, shape, _free(build, edge))
        self._others = others

    def look(self) -> Look:
        """Seconds of each task of one run, by part, by the serial executor's record."""
        self._others += 1.0
        self._executor.reset()
        self._executor.release(0)
        self._executor.wait(last_group(0), 1)
        events = self._executor.recording()[0].events
        self._seconds[events["task"]] = (events["end_ns"] - events["start_ns"]) * 1e-9
        return {part: self._seconds[tasks] for part, tasks in self._tasks.items()}


@lru_cache(maxsize=1 << 12)  # asked several times for each layer and method, and declares all tasks
def _bytes(shape: ConvShape, method: Method) -> int:
    """Memory that a layer takes alone."""
    layout, edge = _alone(shape, method)
    arena = Arena()
    _emit(Build.new(arena, layout, 0), edge, shape)
    return arena.bytes


def _free(build: Build, edge: Edge) -> set[Identity]:
    """Tasks of derived filters, which forward passes alone do not pay for: filters never change."""
    step = Step()
    if not build.layout.training:
        convolution.derive(step, build, edge)
    return {task.what for task in step.tasks}


def _by_part(
    graph: TaskGraph, shape: ConvShape, free: Collection[Identity]
) -> dict[CostPart, NDArray[np.int64]]:
    """Tasks by the part of the cost that they belong to, where it is wanted."""
    found: dict[CostPart, list[int]] = {}
    for number, task in enumerate(identities(graph)):
        if task in free or task.part in OF_NO_EDGE:
            continue
        part = SHARED_PARTS.get(task.part) or _NAME_OF[task.serves]
        if wanted(part, shape.passes):
            found.setdefault(part, []).append(number)
    return {part: np.array(tasks) for part, tasks in found.items()}


def _alone(shape: ConvShape, method: Method) -> tuple[Layout, Edge]:
    """A network around one conv edge, whose source's images lie as they do in a network."""
    edge = Edge(
        "conv",
        "conv_transpose" if shape.transposed else "conv",
        "source",
        "target",
        size=shape.size,
        stride=shape.stride,
        sparsity=shape.dilation,
        padding=shape.padding,
        border=shape.border,
        output_padding=_added(shape),
    )
    target = Node("target", "sum", shape.outputs)
    if shape.planar:
        network = Network((Node("source", "input", shape.inputs), target), (edge,))
    else:
        # An input that feeds others too lies in blocks; other nodes of few images may lie planar.
        learns = "gradient" in shape.passes or not shape.training
        lift = Edge("lift", "crop" if learns else "identity", "input", "source")
        if shape.transposed:  # what grows must have shrunk before
            lift = Edge("lift", "max_pool", "input", "source", stride=shape.stride)
        source = Node("source", "transfer", shape.inputs, bias="gradient" in shape.passes)
        ends = Node("input", "input", shape.inputs), source
        network = Network((*ends, target), (lift, edge))
    # Few images of a source stay planar where their gradient, if any, is made directly.
    back = method if "gradient" in shape.passes else Method("direct")
    plan = Plan({"conv": LayerPlan.of(method, back, method)})
    fitted = fit(network, shape.target)
    return Layout(network, fitted, plan, shape.batch, training=shape.training), edge


def _added(shape: ConvShape) -> Triple:
    """Voxels that a transposed convolution adds after its last ones."""
    if not shape.transposed:
        return (0, 0, 0)
    z, y, x = (
        target - ((source - 1) * stride + (taps - 1) * apart + 1 - sum(sides))
        for target, source, stride, taps, apart, sides in zip(
            shape.target,
            shape.source,
            shape.stride,
            shape.size,
            shape.dilation,
            shape.padding,
            strict=True,
        )
    )
    return z, y, x


def _given(build: Build, edge: Edge) -> list[Buffer]:
    """What other tasks of a network would fill."""
    gradient = build.images.gradients.get(edge.target)
    given = (build.value(edge.source), gradient)
    return [tensor.buffer for tensor in given if tensor]


def _emit(build: Build, edge: Edge, shape: ConvShape) -> Step:
    """Derived filters and the wanted passes of one edge."""
    step, network = Step(), build.layout.network
    convolution.derive(step, build, edge)
    convolution.forward(step, build, edge)
    convolution.finish_forward(step, build, network.node(edge.target))
    if "weight" in shape.passes:
        gradient = build.images.gradients[edge.target]
        convolution.weight_gradient(step, build, edge, gradient)
    if "gradient" in shape.passes:
        convolution.data_gradient(step, build, edge, gradient)
        convolution.finish_backward(step, build, network.node(edge.source))
    return step
