"""The task-graph engine: one arena, the graphs that run in it, and the steps in flight."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from znnpy_kernels.abi import Kernel
from znnpy_kernels.compile import compile_all

from znnpy.engine.arena import Arena
from znnpy.engine.arrays import Floats
from znnpy.engine.build import STEPS, Build
from znnpy.engine.dependencies import Declared, connect, last_group
from znnpy.engine.emit import emit_backward, emit_derived, emit_forward, emit_update
from znnpy.engine.images import Layout
from znnpy.engine.loss import loss_group
from znnpy.engine.optimizer import Optimizer
from znnpy.engine.step import Step
from znnpy.engine.tensors import Tensor
from znnpy.scheduler import Executor, SerialExecutor

Graphs = dict[str, Sequence[Sequence[Declared]]]
Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Settings:
    """What a step does beside its network: loss, optimiser, clipping; and how tasks are run."""

    loss: str
    optimizer: Optimizer
    clip_norm: float | None
    threads: int  # 0: the serial executor
    policy: str = "critical-path"
    steal_seed: int = 0
    record: int = 0


@dataclass(frozen=True)
class StepResult:
    """Loss and share of wrong voxels of one step, both weighted means; sums over several outputs."""

    loss: float
    error: float


def planned_bytes(layout: Layout, settings: Settings) -> int:
    """Size of the arena that a layout needs, found by building without memory."""
    arena = Arena()
    _declare_all(Build.new(arena, layout, len(settings.optimizer.state_names)), layout, settings)
    return arena.bytes


class TaskEngine:
    """Runs one layout's graphs on native threads. One caller at a time; at most two steps in flight."""

    def __init__(self, layout: Layout, settings: Settings, report: Report | None = None) -> None:
        self.layout, self.settings = layout, settings
        self.bytes = planned_bytes(layout, settings)
        self._arena = Arena.of(self.bytes)
        self.build = Build.new(self._arena, layout, len(settings.optimizer.state_names))
        declared = _declare_all(self.build, layout, settings)
        kernels: set[Kernel] = {
            task.kernel for steps in declared.values() for s in steps for task in s
        }
        compile_all(kernels, max(1, settings.threads), report)
        self._declared = declared
        self._executors: dict[str, Executor | SerialExecutor] = {}
        self._released: dict[tuple[str, int], int] = {}
        self.submitted = 0

    def executor(self, name: str) -> Executor | SerialExecutor:
        """The executor of a graph: `update`, `forward`, `derive`, or gradients by some loss."""
        if name not in self._executors:
            graph = connect(self._declared[name]).build(self.settings.policy)
            settings = self.settings
            if settings.threads == 0 or name == "derive":
                self._executors[name] = SerialExecutor(graph, record=settings.record)
            else:
                self._executors[name] = Executor(
                    graph, settings.threads, seed=settings.steal_seed, record=settings.record
                )
        return self._executors[name]

    def submit(
        self,
        inputs: Mapping[str, Floats],
        targets: Mapping[str, Floats],
        weights: Mapping[str, Floats],
        learning_rate: float,
        iteration: int,
    ) -> int:
        """Start one update once the step before the last is complete; returns its ticket."""
        ticket, copy = self.submitted, self.submitted % STEPS
        self._finish("update", copy)
        self.stage(copy, inputs, iteration)
        self.stage_targets(copy, targets, weights)
        self._stage_hyper(copy, learning_rate, iteration)
        self._release("update", copy)
        self.submitted += 1
        return ticket

    def result(self, ticket: int) -> StepResult:
        """Loss and error of a submitted update, as soon as its loss is known."""
        if not self.submitted - STEPS <= ticket < self.submitted:
            raise ValueError(f"ticket {ticket} is not among the last {STEPS} submitted")
        copy = ticket % STEPS
        self._wait("update", copy, loss_group(copy))
        return self._read_result(copy)

    def drain(self) -> None:
        """Wait until every submitted update is complete."""
        for copy in range(STEPS):
            self._finish("update", copy)

    def run_forward(self) -> None:
        """Compute all values from what is staged in step 0, without dropout."""
        self.drain()
        self._run("forward")

    def run_gradients(self, loss: str) -> StepResult:
        """Compute loss and gradients of what is staged in step 0, and leave parameters alone."""
        self.drain()
        name = f"gradients by {loss}"
        if name not in self._declared:
            self._declared[name] = [_declare_gradients(self.build, loss)]
            compile_all({task.kernel for task in self._declared[name][0]}, 1)
        self._run(name)
        return self._read_result(0)

    def derive(self) -> None:
        """Recompute what follows from filters, after they were set from outside."""
        self.drain()
        if self._declared["derive"][0]:
            self._run("derive")

    def stage(self, copy: int, inputs: Mapping[str, Floats], iteration: int) -> None:
        """Copy inputs (batch, image, z, y, x) into a step's staging."""
        staging = self.build.staging[copy]
        for name, array in inputs.items():
            self.view(staging.inputs[name])[...] = array
        self._arena.view(staging.iteration, (1,), "i8")[0] = iteration

    def stage_targets(
        self, copy: int, targets: Mapping[str, Floats], weights: Mapping[str, Floats]
    ) -> None:
        """Copy targets and weights into a step's staging, and 1 / (sum of weights)."""
        staging = self.build.staging[copy]
        for name, array in targets.items():
            self._arena.view(staging.targets[name], array.shape)[...] = array
            self._arena.view(staging.weights[name], array.shape)[...] = weights[name]
            counted = weights[name][:, 0] if self.settings.loss == "softmax" else weights[name]
            total = float(counted.sum(dtype=np.float64))
            self._arena.view(staging.normalizers[name], (1,))[0] = 1 / total if total else 0.0

    def view(self, tensor: Tensor) -> Floats:
        """A tensor's memory as (batch, block, z, y, x, lane), or (batch, image, z, y, x) if planar."""
        shape = [tensor.batch, tensor.blocks, *tensor.shape]
        strides = [tensor.batch_stride, tensor.block_stride, tensor.z_stride, tensor.y_stride]
        strides.append(tensor.lanes)
        if tensor.lanes > 1:
            shape.append(tensor.lanes)
            strides.append(1)
        whole = self.flat(tensor.address, 1)
        return np.lib.stride_tricks.as_strided(whole, shape, [4 * stride for stride in strides])

    def images(self, node: str) -> Floats:
        """A copy of a node's images (batch, image, z, y, x) as last computed."""
        tensor = self.build.value(node)
        return dense(self.view(tensor), tensor)

    def flat(self, address: int, floats: int) -> Floats:
        """A view of a flat range of the arena."""
        return self._arena.view(address, (floats,)).view(np.float32)

    def close(self) -> None:
        """Stop the workers; the engine cannot be used afterwards."""
        for executor in self._executors.values():
            executor.close()
        self._executors.clear()

    def _stage_hyper(self, copy: int, learning_rate: float, iteration: int) -> None:
        staging, optimizer = self.build.staging[copy], self.settings.optimizer
        for address, decay in ((staging.hyper, True), (staging.hyper_biases, False)):
            values = optimizer.hyperparameters(learning_rate, iteration + 1, decay=decay)
            self._arena.view(address, (len(values),), "f8")[...] = values

    def _read_result(self, copy: int) -> StepResult:
        results = self.build.staging[copy].results.values()
        pairs = [self._arena.view(address, (2,), "f8") for address in results]
        return StepResult(float(sum(p[0] for p in pairs)), float(sum(p[1] for p in pairs)))

    def _run(self, name: str) -> None:
        self._release(name, 0)
        self._finish(name, 0)

    def _release(self, name: str, copy: int) -> None:
        self.executor(name).release(copy)
        self._released[name, copy] = self._released.get((name, copy), 0) + 1

    def _finish(self, name: str, copy: int) -> None:
        self._wait(name, copy, last_group(copy))
        if name not in ("forward", "derive"):
            self._wait(name, copy, loss_group(copy))

    def _wait(self, name: str, copy: int, group: int) -> None:
        count = self._released.get((name, copy), 0)
        if count:
            self.executor(name).wait(group, count)


def dense(view: Floats, tensor: Tensor) -> Floats:
    """A tensor's real images, copied to (batch, image, z, y, x)."""
    if tensor.lanes == 1:
        return view.copy()
    planar = np.moveaxis(view, -1, 2)
    shape = (tensor.batch, tensor.blocks * tensor.lanes, *tensor.shape)
    return np.ascontiguousarray(planar.reshape(shape)[:, : tensor.images])


def _declare_all(build: Build, layout: Layout, settings: Settings) -> Graphs:
    """Every graph of a layout, as steps of declared tasks; also reserves all scratch."""
    derive, forward = Step(), Step()
    emit_derived(derive, build)
    declared: Graphs = {"derive": [derive.tasks]}
    if layout.training:
        declared["update"] = [_declare_update(build, settings, copy) for copy in range(STEPS)]
    build.copy, build.dropping = 0, False
    emit_forward(forward, build)
    declared["forward"] = [forward.tasks]
    return declared


def _declare_gradients(build: Build, loss: str) -> list[Declared]:
    build.copy, build.dropping = 0, True
    step = Step()
    emit_forward(step, build)
    emit_backward(step, build, loss)
    return step.tasks


def _declare_update(build: Build, settings: Settings, copy: int) -> list[Declared]:
    build.copy, build.dropping = copy, True
    step = Step()
    emit_update(step, build, settings.loss, settings.optimizer, settings.clip_norm)
    return step.tasks
