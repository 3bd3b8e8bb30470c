"""Tasks write what they say and nothing else, and what they write depends on what they say that they read."""

import ctypes
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from against_reference import random_case
from model_settings import model_of
from odd_networks import network, size
from small_models import data
from znnpy_kernels.simd.lanes import LANES

from znnpy import Execution, Model, Optimizer
from znnpy.engine.convolution.winograd import gradient_stages, weight_gradients
from znnpy.engine.memory import joined_gradients
from znnpy.engine.step_tasks import declare_update
from znnpy.engine.tasks.task_identity import Pass
from znnpy.network.types import Norm
from znnpy.plan import PASSES
from znnpy.plan.algorithms import winograd_gradients
from znnpy.plan.cost import MOST_PLANAR

NAN = 0xFFFFFFFF  # as all words of four bytes: a NaN of floats and of doubles


class Watched:
    """The memory of a model that has made a step, and that step's tasks, which run in turn.

    `writer`: of each word the task that wrote it last in this run, -1 of those that none did. What a region stands for
    is known by it alone: units of ranges are their users' own. `after`: by task those that changed in place what it
    wrote. `gates`: the last one of each section of a buffer, before which all earlier uses of it have ended.
    """

    def __init__(self, model):
        engine = model._engine
        engine.drain()
        # By words of four bytes, of which all buffers are.
        self.memory, self.parameters = engine._arena._memory.view("u4"), engine._build.parameters
        self.workspace = engine._build.workspace
        self.tasks = list(declare_update(engine._build, engine.settings, 0, None))
        touched = [it for task in self.tasks for it in (*task.reads, *task.writes)]
        self.known = self.marked(self.spans(touched).values())
        self.writer, self.after = np.full(self.memory.size, -1, np.int32), {}
        self.gates = {}

    def spans(self, regions):
        """The words of the buffers of regions, slices by buffer."""
        found = dict.fromkeys(it.buffer for it in regions)
        return {it: self.span(it.address, it.floats) for it in found if it.address}

    def span(self, address, count):
        start = (address - self.memory.ctypes.data) // 4
        return slice(start, start + count)

    def marked(self, spans):
        """Which words lie in slices."""
        found = np.zeros(self.memory.size, bool)
        for span in spans:
            found[span] = True
        return found

    def scratch(self, task):
        words = dict(zip(task.kernel.fields, task.arguments, strict=True))
        return [self.span(words["scratch"], self.workspace)] if words.get("scratch") else []

    def states(self, task):
        """The optimiser's, which none but its task touches."""
        if task.what.serves is not Pass.UPDATE or task.what.owner not in self.parameters:
            return []
        parameter = self.parameters[task.what.owner]
        return [self.span(state, parameter.floats) for state in parameter.states]

    def call(self, task):
        for kernel, words in ((task.kernel, task.arguments), *task.more):
            block = (ctypes.c_int64 * max(1, len(words)))(*words)
            kernel.compile().ctypes(block, 0)

    def run(self, number):
        """Run a task; it is the writer of what it makes where NaN was, or of what it changes."""
        task = self.tasks[number]
        self.gates.update(dict.fromkeys(task.between, number))
        written, read = [*self.spans(task.writes).values()], self.spans(task.reads).values()
        kept = [(it, self.memory[it].copy()) for it in (*written, *self.states(task))]
        for span in written:
            self.memory[span] = NAN
        for span in read:
            for other, words in kept:
                low, high = max(span.start, other.start), min(span.stop, other.stop)
                if low < high:
                    self.memory[low:high] = words[low - other.start : high - other.start]
                    # What it changes in place it may leave as it was.
                    for earlier in np.unique(self.writer[low:high]).tolist():
                        self.after.setdefault(earlier, set()).add(number)
        # Of words that it reads all were known before.
        empty = [self.memory[span] == NAN for span in written]
        self.call(task)
        made = [was & (self.memory[span] != NAN) for span, was in zip(written, empty, strict=True)]
        for span, words in kept:
            self.memory[span] = words
        self.call(task)
        for span, there, (_, words) in zip(written, made, kept, strict=False):
            self.writer[span][there | (self.memory[span] != words)] = number

    def check(self, number):
        """Run a task; then again where all that it does not say is NaN."""
        task, before = self.tasks[number], self.memory.copy()
        own = [*self.scratch(task), *self.states(task)]
        strange, others = self.known & ~self.marked(own), self.others(task)
        strange &= ~self.said(task)
        self.run(number)
        after, made = self.memory.copy(), self.writer == number
        changed = after != before
        for span in (*self.spans(task.writes).values(), *own):
            changed[span] = False
        changed |= made & others
        assert not changed.any(), f"{task.kernel.name} of {task.what} writes what it does not say"
        self.memory[:] = before
        self.memory[strange] = NAN
        self.call(task)
        other = (self.memory != after) & made
        assert not other.any(), f"{task.kernel.name} of {task.what} reads what it does not say"
        self.memory[:] = after

    def said(self, task):
        """Which words a task says to touch: those of its buffers that nobody wrote, or whose writers it follows."""
        regions = [*task.reads, *task.writes]
        return self.of_writers(regions, lambda n, _: n < 0 or self.reaches(n, regions))

    def others(self, task):
        """Which words of the buffers that a task writes others made, of parts of them that it does not touch.

        But for those that a gate has set free, which may lie otherwise from then on.
        """
        regions = [*task.reads, *task.writes]

        def apart(number, buffer):
            own = [it for it in self.tasks[number].writes if it.buffer is buffer]
            there = number >= 0 and any(number > self.gates.get(it.key, -1) for it in own)
            return there and not self.reaches(number, regions)

        return self.of_writers(task.writes, apart)

    def reaches(self, number, regions):
        """Whether regions overlap what a task writes, or later ones that changed that in place."""
        seen, waiting = {number}, [number]
        while waiting:
            task = waiting.pop()
            if meet(self.tasks[task].writes, regions):
                return True
            waiting += self.after.get(task, set()) - seen
            seen |= self.after.get(task, set())
        return False

    def of_writers(self, regions, wanted):
        """Which words of the buffers of regions have a writer that is wanted of a buffer."""
        found = np.zeros(self.memory.size, bool)
        for buffer, span in self.spans(regions).items():
            there = self.writer[span]
            them = [n for n in np.unique(there).tolist() if wanted(n, buffer)]
            found[span] |= np.isin(there, them)
        return found


def meet(ones, others):
    """Whether any of some regions overlaps any of others."""
    return any(one.key == other.key and one.overlaps(other) for one in ones for other in others)


def checked(model, x, target, weight=None):
    """The tasks of a model's update, of which some of each kernel were watched."""
    model.step(x, target, weight=weight, learning_rate=0.01)
    watched, by_kernel = Watched(model), dict[str, list[int]]()
    for number, task in enumerate(watched.tasks):
        by_kernel.setdefault(task.kernel.name, []).append(number)
    # The first, which touches a border, and one among others.
    some = {them[place] for them in by_kernel.values() for place in (0, len(them) // 2)}
    for number in range(max(some) + 1):
        (watched.check if number in some else watched.run)(number)
    return watched.tasks


def check(net, output, arrays, **options):
    """Watch the tasks of an update; gives how many each kernel has."""
    with model_of(net, output, optimizer=Optimizer("adam"), **options) as model:
        return Counter(task.kernel.name for task in checked(model, *arrays(model)))


@pytest.mark.share(10)
@pytest.mark.quick(3)
@pytest.mark.parametrize("conv", ["direct", "fft", "spectral"])
@pytest.mark.parametrize("seed", range(6))
def test_tasks_of_any_network(seed, conv):
    net, output, _, (batch, microbatch), _, *arrays = random_case(seed)
    sizes = {"batch": batch, "microbatch": microbatch}
    check(net, output, lambda model: arrays, loss="square", conv=conv, threads=1, **sizes)


def padded(taps=(3, 3, 3), images=(17, 18)):
    """A layer of many images between small ones, padded, by Winograd where it can be."""
    net = network(
        [("x", "input", 1), ("a", "transfer", images[0], {"function": "relu"}),
         ("b", "transfer", images[1], {"function": "elu"}), ("y", "transfer", 2)],
        [("conv", "x", "a", size(3, 3, 3)), ("conv", "a", "b", size(*taps, padding="same")),
         ("conv", "b", "y", size(1, 1, 1))],
    )  # fmt: skip
    return net, {f"e{n}": by("winograd" if n == 1 else "direct") for n in range(3)}


def by(algorithm, march="joined"):
    """All passes of a layer by an algorithm, those of Winograd's by the march."""
    plan = dict.fromkeys(PASSES, algorithm)
    return plan | {f"{it}_march": march for it in PASSES if algorithm == "winograd"}


@pytest.mark.parametrize("output", [(5, 6, 7), (1, 2, 9)])
@pytest.mark.parametrize(
    ("taps", "kernels"),
    [
        (
            (3, 3, 3),
            {"winograd_source_points", "winograd_gradient_points", "winograd_gradient_sums"},
        ),
        ((1, 3, 1), {"winograd_gradient_1x3x1"}),
        ((1, 3, 3), {"winograd_flat", "winograd_flat_back"}),
        ((3, 1, 1), {"winograd_lines", "winograd_lines_back"}),
    ],
)
def test_tasks_of_winograd_layers(taps, kernels, output):
    net, plan = padded(taps)
    found = check(net, output, lambda model: (*data(model), None), plan=plan, threads=1)
    assert kernels | {"direct_planar_source_2", "direct_few_one_tap_2"} <= found.keys()


@pytest.mark.parametrize(("taps", "across"), [((3, 3, 3), 2), ((1, 3, 3), 1)])
def test_tasks_of_strided_layers(taps, across, monkeypatch):
    """Of even extents, cut as for many workers, in ranges of few tiles; another layer adds to their target."""
    monkeypatch.setattr(winograd_gradients, "STRIDED_TILES", {2: 2, 3: 2})
    stride, around = (across, 2, 2), tuple((n // 2, n // 2) for n in taps)
    net = network(
        [("x", "input", 1), ("a", "transfer", 10, {"function": "relu"}),
         ("b", "transfer", 19, {"function": "relu"}), ("y", "transfer", 2)],
        [("conv", "x", "a", size(1, 1, 1)),
         ("conv", "a", "b", size(*taps, stride=stride, padding=around, border="reflect")),
         ("conv", "a", "b", size(*stride, stride=stride)), ("conv", "b", "y", size(1, 1, 1))],
    )  # fmt: skip
    plan = {f"e{n}": by("direct") for n in range(4)} | {"e1": by("winograd")}
    found = check(
        net, (9, 5, 6), lambda model: (*data(model), None), plan=plan, threads=1,
        execution=Execution(cut_for=64),
    )  # fmt: skip
    names = [name for name in found if name.startswith("winograd_strided")]
    assert len(names) == 7


def test_tasks_of_ranges_of_strided_layers_that_are_not_alike(monkeypatch):
    """Of two samples, and of one: their points lie elsewhere in the same buffer."""
    monkeypatch.setattr(winograd_gradients, "STRIDED_TILES", {2: 5})
    net, plan = padded((1, 3, 3))
    edges = [replace(it, stride=(1, 2, 2)) if it.name == "e1" else it for it in net.edges]
    edges[1] = replace(edges[1], padding=((0, 0), (1, 1), (1, 1)))
    settings = {"plan": plan, "threads": 1, "batch": 5}
    found = check(
        replace(net, edges=tuple(edges)), (1, 2, 5), lambda model: (*data(model), None), **settings
    )
    assert found["winograd_strided_sums_1x3x3"] > 1


def test_tasks_of_weight_gradients_of_lines_alone():
    """What tasks that make no data gradient touch."""
    net, plan = padded((3, 1, 1))
    plan["e1"] |= {"gradient": "direct", "gradient_march": None}
    found = check(net, (5, 6, 7), lambda model: (*data(model), None), plan=plan, threads=1)
    assert "winograd_lines_back" in found


def test_tasks_of_lines_that_share_their_source():
    """They read its values for filters alone, as its function's gradient comes later."""
    line = size(3, 1, 1, padding="same")
    net = network(
        [("x", "input", 1), ("a", "transfer", 17, {"function": "relu"}), ("b", "transfer", 18),
         ("y", "transfer", 2)],
        [("conv", "x", "a", size(3, 3, 3)), ("conv", "a", "b", line), ("conv", "a", "b", line),
         ("conv", "b", "y", size(1, 1, 1))],
    )  # fmt: skip
    plan = {f"e{n}": by("winograd" if n in (1, 2) else "direct") for n in range(4)}
    found = check(net, (5, 6, 7), lambda model: (*data(model), None), plan=plan, threads=1)
    assert "winograd_lines_back" in found


@pytest.mark.parametrize("joined", [[("conv", "a", "b", size(3, 3, 3, padding="same"))], []])
def test_tasks_of_both_gradients_of_cubes(monkeypatch, joined):
    """Of a source that one layer reads, or several."""
    monkeypatch.setattr(joined_gradients, "FEWEST_TILES", 1)
    net = network(
        [("x", "input", 1), ("a", "transfer", 10, {"function": "relu"}), ("b", "transfer", 9),
         ("y", "transfer", 2)],
        [("conv", "x", "a", size(3, 3, 3)), *joined,
         ("conv", "a", "b", size(3, 3, 3, padding="same")), ("conv", "b", "y", size(1, 1, 1))],
    )  # fmt: skip
    inner = range(1, len(net.edges) - 1)
    plan = {f"e{n}": by("winograd" if n in inner else "direct") for n in range(len(net.edges))}
    found = check(net, (5, 6, 9), lambda model: (*data(model), None), plan=plan, threads=1)
    assert "winograd_cubes_back" in found


def test_tasks_of_shallow_layers():
    net, plan = padded((3, 3, 3), (47, 50))
    found = check(net, (3, 4, 2), lambda model: (*data(model), None), plan=plan, threads=1)
    kernels = {"winograd_shallow", "winograd_shallow_exchanged", "winograd_shallow_sums"}
    assert kernels <= found.keys()


@pytest.mark.parametrize("output", [(1, 5, 4), (2, 9, 3)])
def test_tasks_of_filters_that_learn_from_winners(output):
    net = network(
        [("x", "input", 1), ("a", "transfer", 19, {"function": "relu"}), ("p", "sum", 19),
         ("y", "transfer", 2)],
        [("conv", "x", "a", size(1, 4, 4, padding="same")),
         ("max_pool", "a", "p", size(1, 3, 3, stride=(1, 3, 3))), ("conv", "p", "y", size(1, 1, 1))],
    )  # fmt: skip
    settings = {"conv": "direct", "threads": 1, "batch": 2}
    found = check(net, output, lambda model: (*data(model), None), **settings)
    assert "maxima_gradient" in found


@pytest.mark.parametrize("images", [(17, 18), (47, 50)], ids=["cubes", "shallow"])
def test_tasks_of_updates_at_once(images, monkeypatch):
    monkeypatch.setattr(weight_gradients, "LEAST_UPDATED", 0)
    monkeypatch.setattr(gradient_stages, "UPDATED_BYTES", 1)
    net, plan = padded((3, 3, 3), images)
    with model_of(net, (3, 4, 2), plan=plan, threads=1, optimizer=Optimizer("adam")) as model:
        tasks = checked(model, *data(model))
    assert "e1" in {task.what.owner for task in tasks if task.follows}


@pytest.mark.parametrize("norm", ["instance", "group"])
def test_tasks_of_several_blocks_of_channels(norm):
    """Few workers' elementwise tasks go through some blocks each."""
    many = 4 * LANES + 5
    net = network(
        [("x", "input", 1), ("a", "transfer", many, {"function": "silu", "norm": Norm(norm)}),
         ("b", "transfer", many, {"function": "elu"}), ("s", "sum", many), ("y", "transfer", 2)],
        [("conv", "x", "a", size(3, 3, 3)), ("identity", "a", "s", {}),
         ("conv", "a", "b", size(1, 3, 3, padding="same", border="reflect")),
         ("identity", "b", "s", {}), ("conv", "s", "y", size(1, 1, 1))],
    )  # fmt: skip
    with model_of(net, (5, 6, 7), conv="direct", threads=1, optimizer=Optimizer("adam")) as model:
        several = {task.kernel.name for task in checked(model, *data(model)) if task.more}
    assert {"lane_statistics", "frame_rows", "transfer_silu"} <= several


@pytest.mark.skipif(not MOST_PLANAR, reason="vectors of four floats")
@pytest.mark.parametrize("output", [(5, 6, 37), (1, 2, 9)])
def test_tasks_between_planar_channels(output):
    """Padded by zeros and by what lies at the border, of two nodes that converge."""
    net = network(
        [("x", "input", 1), ("a", "transfer", 3, {"function": "relu"}),
         ("b", "transfer", 4, {"function": "elu"}), ("y", "transfer", 2)],
        [("conv", "x", "a", size(3, 3, 3, padding="same")),
         ("conv", "a", "b", size(1, 3, 3, padding="same", border="replicate")),
         ("conv", "a", "y", size(3, 1, 3, padding="same")),
         ("conv", "b", "y", size(3, 3, 3, padding="same"))],
    )  # fmt: skip
    plan = {f"e{n}": by("winograd") for n in range(4)}
    found = check(net, output, lambda model: (*data(model), None), plan=plan, threads=1)
    both = {"winograd_planar_back", "winograd_planar_back_3x1x3"}
    kernels = {"winograd_planar", "winograd_planar_gradient", "winograd_planar_gradient_1x3x3"}
    assert kernels | both <= found.keys()


@pytest.mark.parametrize("what", ["reads", "writes"])
def test_what_a_task_does_not_say_is_seen(what):
    net, plan = padded()
    with Model(net, (3, 3, 3), plan=plan, threads=1) as model:
        model.step(*data(model), learning_rate=0.01)
        watched = Watched(model)
        number, task = next(it for it in enumerate(watched.tasks) if it[1].reads and it[1].writes)
        for before in range(number):
            watched.run(before)
        watched.tasks[number] = replace(task, **{what: ()})
        with pytest.raises(AssertionError, match=f"{what} what it does not say"):
            watched.check(number)


def test_planes_that_a_task_does_not_say_are_seen():
    """Of a buffer of which it says others."""
    net, plan = padded()
    with Model(net, (3, 3, 3), plan=plan, threads=1) as model:
        model.step(*data(model), learning_rate=0.01)
        watched = Watched(model)
        for number, task in enumerate(watched.tasks):
            first = tuple(it._replace(high=it.low + 1) for it in task.reads)
            fewer = replace(task, reads=first)
            if (watched.said(task) & ~watched.said(fewer)).any():
                break
            watched.run(number)
        assert {it.buffer for it in first} == {it.buffer for it in task.reads}
        watched.tasks[number] = fewer
        with pytest.raises(AssertionError, match="reads what it does not say"):
            watched.check(number)
