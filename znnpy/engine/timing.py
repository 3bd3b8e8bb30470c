"""Times one layer by several algorithms, task by task, on patches of bounded size (for autotuning)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from mmap import PAGESIZE

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.compile import compile_all
from znnpy_kernels.simd.lanes import LANES

from znnpy.data.process_memory import whole_memory
from znnpy.engine.memory.arena import aligned_bytes
from znnpy.engine.memory.arrays import Floats
from znnpy.engine.single_layer import Lone, lone_bytes
from znnpy.engine.tasks.dependencies import last_group
from znnpy.engine.tasks.task_identity import PASS_OF, Identity, Part, Pass, identities
from znnpy.geometry import voxels
from znnpy.graph import TaskGraph
from znnpy.network.types import ONCE, Triple
from znnpy.plan import ConvShape, Costs, Method
from znnpy.plan.algorithms.spectral import dense
from znnpy.plan.algorithms.winograd_tiles import new_voxels
from znnpy.plan.choose import estimated, estimated_seconds
from znnpy.plan.cost import LANES_COUNTED
from znnpy.plan.robust_timing import Look, settle
from znnpy.plan.tiles import new_points, tile_count, tiles_of
from znnpy.plan.types import COST_PARTS, CostPart, PartSeconds, wanted
from znnpy.scheduler import SerialExecutor

# Of all passes, by estimate, which is of LANES_COUNTED lanes: what takes longer is measured on a smaller patch, then on
# fewer samples.
MOST_SECONDS = 0.1 * LANES / LANES_COUNTED
SMALLEST = 24  # voxels along an axis: patches are not made smaller
# The same, (z, y, x), of direct convolution, which takes as long for a voxel however few there are; and voxels of all
# samples, as reading filters counts where they are fewer.
SMALLEST_DIRECT, FEWEST_DIRECT = (8, 16, 24), 16 * 24
LARGE = 48  # voxels along an axis: of larger patches first samples are left out
# Wide layers on small patches: with fewer tiles the products would no longer be as dense as in the network.
FEWEST_VOXELS = 3 * SMALLEST**2
BY_OPERATIONS = "direct"  # the algorithm whose estimates count operations, of which layers take about the same share
FEW_BLOCKS = 3  # of LANES channels: with fewer, layers take shares of their own
LONG_SECONDS = 0.3  # of a look, of which disturbances are a small part
# Larger: every look takes longer. Smaller: part of a layer's memory is still in the caches from the
# run before.
FLUSHED_BYTES = 1 << 25  # touched between runs: in a network other layers use the caches as well
# Parts of the cost that passes of an edge share, by the tasks that compute them.
# Tasks of any other part belong to the pass that they serve.
SHARED_PARTS: Mapping[Part, CostPart] = {
    Part.IMAGE_SPECTRA: "images",
    Part.KEPT_TILES: "images",
    Part.FILTER_SPECTRA: "filters",
    Part.DENSE_FILTERS: "filters",
    Part.FILTER_TILES: "filters",
    Part.OUTPUT_SPECTRA: "gradients",
    Part.OUTPUT_TILES: "gradients",
    Part.BOTH: "gradients",
}
# Their work grows with the filters alone, whatever the patch; so does the way back of the filters' gradients.
OF_FILTERS = {
    Part.FILTER_SPECTRA,
    Part.FILTER_TILES,
    Part.FILTER_POINTS,
    Part.DENSE_FILTERS,
    Part.TRANSPOSE,
    Part.SUM,
}
# Gates do no work; biases belong to nodes and cost the same whatever the method.
OF_NO_EDGE = {Part.GATE, Part.BIAS}
# Plans name passes in one word, tasks in an enumeration: this leads from tasks to plans.
_NAME_OF: Mapping[Pass, CostPart] = {which: name for name, which in PASS_OF.items()}


class Workbench:
    """What trials of one layer after the other share: their memory, and the tasks of the layer at hand.

    The system takes seconds to give gigabytes; tasks are declared to know their kernels, which are compiled before
    any trial, and run in it. One caller at a time.
    """

    def __init__(self) -> None:
        self._bytes, self._touched = np.zeros(0, np.uint8), 0
        self._declared: dict[tuple[ConvShape, Method], Lone] = {}
        self._shares: dict[tuple[object, ...], PartSeconds] = {}

    def declared(self, shape: ConvShape, method: Method) -> Lone:
        """Return a layer's tasks, which are kept until `clear`."""
        key = shape, method
        if key not in self._declared:
            self._declared[key] = Lone.of(*key)
        return self._declared[key]

    def clear(self) -> None:
        """Forget the tasks of a layer whose trials are over, or wait for kernels."""
        self._declared.clear()

    def of(self, size: int) -> NDArray[np.uint8]:
        """Return so many bytes, uint8 (size,), those returned before among them, with what trials have left there.

        Arithmetic takes as long whatever the numbers are, as executors flush denormals. The first ones are 0.
        """
        if len(self._bytes) < size:
            self._bytes, self._touched = np.zeros(0, np.uint8), 0  # given back before more is taken
            self._bytes = _reserved(size)
        # Now, where they are not there, rather than in a run.
        self._bytes[self._touched : size : PAGESIZE] = 0
        self._touched = max(self._touched, size)
        return self._bytes[:size]

    def least(self, shape: ConvShape, method: Method) -> PartSeconds | None:
        """Return what a layer takes at least by a method whose estimates count operations; None: not known.

        By the layer of its kind that took the least of its estimate, of those measured before.
        """
        shares = self._shares.get(_kind(shape, method))
        if shares is None:
            return None
        return {part: shares.get(part, 0.0) * it for part, it in estimated(shape, method).items()}

    def note(self, shape: ConvShape, costs: Costs) -> None:
        """Note what a layer took by the methods that were run."""
        for method, parts in costs.items():
            if method.algorithm != BY_OPERATIONS:
                continue
            known = self._shares.setdefault(_kind(shape, method), {})
            for part, seconds in estimated(shape, method).items():
                if seconds and part in parts:
                    share = parts[part] / seconds
                    known[part] = min(share, known.get(part, share))


def _kind(shape: ConvShape, method: Method) -> tuple[object, ...]:
    """Return what layers have in common whose times by a method are as their estimates, about."""
    layer = shape.size, shape.stride, shape.dilation, shape.border, shape.passes
    blocks = (min(FEW_BLOCKS, -(-it // LANES)) for it in (shape.inputs, shape.outputs))
    return method, *layer, *blocks, shape.transposed, bool(shape.bands), shape.planar, shape.between


def _reserved(size: int) -> NDArray[np.uint8]:
    """Return room for so many bytes, and for those of later layers where the system has so much to promise.

    What is never touched takes no memory; what was touched need not be made again.
    """
    try:
        return aligned_bytes(max(size, whole_memory() // 2))
    except OSError:
        return aligned_bytes(size)


def timed(
    shape: ConvShape,
    methods: Sequence[Method],
    max_memory: int | None = None,
    bench: Workbench | None = None,
) -> Costs:
    """Return seconds by method and part, timed in turns in the same memory; times on smaller patches are scaled.

    Each method must fit into `max_memory` bytes; what is left of these flushes the caches. `bench`: of other layers'
    trials, which are over.
    """
    shapes = {method: smaller(shape, method, max_memory) for method in methods}
    bench, flushed = bench or Workbench(), FLUSHED_BYTES
    if max_memory is not None:
        needed = max(bench.declared(less, method).bytes for method, less in shapes.items())
        flushed = _flushing(needed, max_memory) - needed
        bench.of(needed)  # once: where it grows from trial to trial, those before keep theirs
    others = np.zeros(flushed // 4, np.float32)

    @cache  # many a method is never looked at, and declaring its tasks takes as long as running them
    def trial(method: Method) -> Trial:
        lone = bench.declared(shapes[method], method)
        # The same for all trials: methods must not differ by the pages that they happened to get.
        return Trial(shape, shapes[method], method, lone, bench.of(lone.bytes), others)

    looked = set[Method]()

    def look(method: Method) -> Look:
        looked.add(method)
        return trial(method).look()

    bounds = {it: bound for it in methods if (bound := bench.least(shape, it))}
    found = settle(shape, methods, look, lambda method: trial(method).is_long, bounds)
    bench.note(shape, {method: found[method] for method in looked})
    return found


def trial_bytes(shape: ConvShape, methods: Sequence[Method], max_memory: int | None = None) -> int:
    """Return the bytes that timing these methods takes: of the one that needs most, and to flush the caches."""
    most = max(lone_bytes(smaller(shape, method, max_memory), method) for method in methods)
    return _flushing(most, max_memory)


def _flushing(most: int, max_memory: int | None) -> int:
    """Return the bytes of methods that need so many at most, and to flush the caches."""
    flushing = most + FLUSHED_BYTES
    return flushing if max_memory is None else min(flushing, max_memory)


def measurable(
    shape: ConvShape, methods: Sequence[Method], max_memory: int | None
) -> Sequence[Method]:
    """Return the methods that can be measured in so many bytes."""
    return [method for method in methods if fits(shape, method, max_memory)]


def fits(shape: ConvShape, method: Method, max_memory: int | None) -> bool:
    """Return whether a method can be measured in so many bytes, at least on the smallest patch."""
    if max_memory is None:
        return True
    # Ends: patches shrink to SMALLEST, then the batch to 1, and then nothing changes.
    while (less := _shrunk(shape)) != shape:
        shape = less
    return lone_bytes(shape, method) <= max_memory


def as_without_limit(shape: ConvShape, methods: Sequence[Method], max_memory: int) -> bool:
    """Return whether so many bytes are enough to measure as without a limit."""
    return trial_bytes(shape, methods) <= max_memory


def _scales(shape: ConvShape, less: ConvShape, method: Method) -> PartSeconds:
    """Return how much longer each part takes on the whole shape, but for work on filters alone.

    As many times as it has tiles or voxels; of whole-image transforms, by estimate.
    """
    if method.algorithm != "fft":
        return dict.fromkeys(COST_PARTS, _count(shape, method) / _count(less, method))
    whole, part_of = estimated(shape, method), estimated(less, method)
    # Parts that cost nothing by estimate on the small patch cannot be scaled by their own ratio.
    scales = {part: seconds / part_of[part] for part, seconds in whole.items() if part_of[part]}
    return dict.fromkeys(COST_PARTS, scales["forward"]) | scales


def _count(shape: ConvShape, method: Method) -> int:
    """Return the number of tiles of a method, or of positions of filters, in the whole batch."""
    if method.tile:
        return tiles_of(dense(shape), method.tile)
    new = new_voxels(shape.size) if method.algorithm == "winograd" else ONCE
    return shape.batch * tile_count(shape.places, shape.dilation, new)


def smaller(shape: ConvShape, method: Method, max_memory: int | None = None) -> ConvShape:
    """Return the shape with fewer samples and a smaller patch if measuring takes too long or too much memory.

    Another size may fill tiles differently, so a fast layer is measured as it is.
    """
    # First by time, then by memory: the second loop begins with what the first one left.
    whole = shape
    faster = _cut if method.algorithm == "direct" else _faster
    while estimated_seconds(shape, method) > MOST_SECONDS and (less := faster(shape)) != shape:
        shape = less
    shape = _as_full(whole, shape, method)
    if max_memory is None:
        return shape
    most = max_memory - _set_aside(max_memory)
    while (less := _shrunk(shape)) != shape and lone_bytes(shape, method) > most:
        shape = less
    return shape


def _as_full(whole: ConvShape, less: ConvShape, method: Method) -> ConvShape:
    """Return the smaller patch with its tiles as full as those of the whole one, along each axis that is shorter.

    Tiles take less time where they are empty, but not in proportion: a patch with other shares would mislead.
    """
    if method.tile is None:
        return less
    tiled = dense(whole)
    for axis, points in enumerate(new_points(tiled.size, method.tile)):
        extent, part, new = whole.places[axis], less.places[axis], points * tiled.dilation[axis]
        each = extent / -(-extent // new)  # voxels of the whole by tiles
        if part < extent:
            less = _longer(less, axis, min(extent, max(1, round(part / each)) * each) - part)
    return less


def _faster(shape: ConvShape) -> ConvShape:
    """Return the shape with half the samples or a smaller patch, while that is enough; in the end the same shape."""
    extent, found = max(shape.places), list[ConvShape]()
    # Samples of large images are alike, and smaller images are not: they have more of a border.
    if extent > LARGE or extent <= SMALLEST:
        found.append(replace(shape, batch=shape.batch // 2))
    if extent > SMALLEST:
        found.append(_shorter(shape))
    return _enough(found, FEWEST_VOXELS) or shape


def _cut(shape: ConvShape) -> ConvShape:
    """Return the shape with half the samples, or half as long along the first axis that may be; in the end the same."""
    found = [replace(shape, batch=shape.batch // 2)]
    for axis, (extent, least) in enumerate(zip(shape.places, SMALLEST_DIRECT, strict=True)):
        if extent > least:
            found.append(_longer(shape, axis, max(least, extent // 2) - extent))
    return _enough(found, FEWEST_DIRECT) or shape


def _enough(shapes: Sequence[ConvShape], fewest: int) -> ConvShape | None:
    """Return the first of some shapes that has so many voxels in all samples."""
    enough = (less for less in shapes if less.batch * voxels(less.places) >= fewest)
    return next(enough, None)


def _shrunk(shape: ConvShape) -> ConvShape:
    """Return the shape with a smaller patch, or half the samples of the smallest one; in the end the same shape."""
    if max(shape.places) > SMALLEST:
        return _shorter(shape)
    return replace(shape, batch=max(1, shape.batch // 2))


def _set_aside(max_memory: int) -> int:
    """Return the bytes reserved to flush caches, as long as patches can be made smaller."""
    return min(FLUSHED_BYTES, max_memory // 2)


def _shorter(shape: ConvShape) -> ConvShape:
    """Return the shape with the patch shorter by a quarter along its longest axis, but at least `SMALLEST`."""
    longest = shape.places.index(max(shape.places))
    # A quarter at a time, along the longest axis: patches stay near cubes, and shrink little below
    # what is allowed.
    shorter = max(SMALLEST, shape.places[longest] * 3 // 4)
    return _longer(shape, longest, shorter - shape.places[longest])


def _longer(shape: ConvShape, axis: int, by: float) -> ConvShape:
    """Return the shape with the patch longer by so many voxels along an axis; shorter, if that is negative."""
    more = round(by)
    ends = more, more * shape.stride[axis]  # at the strided end, and at the other
    source, target = reversed(ends) if not shape.transposed else ends
    return replace(
        shape,
        source=_less(shape.source, axis, -source),
        target=_less(shape.target, axis, -target),
    )


def _less(size: Triple, axis: int, by: int) -> Triple:
    z, y, x = (extent - by * (number == axis) for number, extent in enumerate(size))
    return z, y, x


class Trial:
    """Timed runs of one layer by one method, in memory that other trials use in turns.

    They are of a smaller `shape`, and tell what the `whole` one would take.
    """

    def __init__(
        self,
        whole: ConvShape,
        shape: ConvShape,
        method: Method,
        lone: Lone,
        memory: NDArray[np.uint8],
        others: Floats,
    ) -> None:
        compile_all(lone.kernels, 1)
        graph = lone.graph(memory)
        self._executor = SerialExecutor(graph, record=graph.size, own_time=True)
        self._seconds = np.zeros(graph.size)
        self._tasks = _by_part(graph, shape, lone.free())
        self._scales, scales = np.ones(graph.size), _scales(whole, shape, method)
        of_filters = np.array([_is_of_filters(task) for task in identities(graph)], bool)
        for part, tasks in self._tasks.items():
            self._scales[tasks] = np.where(of_filters[tasks], 1.0, scales[part])
        self._others, self._memory = others, memory

    @property
    def is_long(self) -> bool:
        """Whether the last look took long."""
        return bool(self._seconds.sum() > LONG_SECONDS)

    def look(self) -> Look:
        """Run once and return the seconds of each task, by part, from the serial executor's recording, scaled."""
        # Evicts what the last run left in the caches.
        self._others += 1.0
        # Recordings begin anew, so `events` are those of this run.
        self._executor.reset()
        self._executor.release(0)
        self._executor.wait(last_group(0), 1)
        events = self._executor.recording()[0].events
        self._seconds[events["task"]] = (events["end_ns"] - events["start_ns"]) * 1e-9
        return {
            part: self._seconds[tasks] * self._scales[tasks] for part, tasks in self._tasks.items()
        }


def _is_of_filters(task: Identity) -> bool:
    return task.part in OF_FILTERS or (task.part is Part.INVERSE and task.serves is Pass.WEIGHT)


def _by_part(
    graph: TaskGraph, shape: ConvShape, free: Collection[Identity]
) -> dict[CostPart, NDArray[np.int64]]:
    """Return the numbers of tasks by the part of the cost that they belong to, of wanted parts."""
    found: dict[CostPart, list[int]] = {}
    for number, task in enumerate(identities(graph)):
        # Derived filters in prediction are made once and for all, so they cost nothing.
        if task in free or task.part in OF_NO_EDGE:
            continue
        part = SHARED_PARTS.get(task.part) or _NAME_OF[task.serves]
        if wanted(part, shape.passes):
            found.setdefault(part, []).append(number)
    return {part: np.array(tasks) for part, tasks in found.items()}
