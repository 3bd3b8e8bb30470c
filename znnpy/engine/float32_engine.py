"""The float32 engine: one arena, task graphs on native threads, two steps in flight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from znnpy.engine.execution import Graphs, compile_planned
from znnpy.engine.memory.allocation import STEPS, Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.arrays import ByName, Floats, joined
from znnpy.engine.memory.parameters import pack_parameter, unpack_parameter
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.memory_planning import MemoryPlan
from znnpy.engine.progress import Report
from znnpy.engine.step_result import KEPT, StepResult, refuse_ticket
from znnpy.engine.step_tasks import Settings
from znnpy.engine.tasks.step import added_pairs
from znnpy.graph import TaskGraph
from znnpy.network.objectives import Objectives, total_factor
from znnpy.scheduler.recording import WorkerRecording


class SingleEngine:
    """Runs a planned layout's task graphs. Arrays come checked, by node name; one caller at a time."""

    dtype = np.float32

    def __init__(self, plan: MemoryPlan, settings: Settings, report: Report | None = None) -> None:
        layout = plan.layout
        self.layout, self.settings = layout, settings
        self.bytes = plan.bytes
        self._arena = Arena.of(plan.arena, plan.sharing)
        self._build = Build.new(self._arena, layout, settings.states, plan.workspace)
        if settings.party:
            if settings.party.rank == 0:
                compile_planned(layout, settings, report)
            settings.party.tell(layout.plan)  # for which the others wait
            settings = replace(settings, party=settings.party.seeing(self._build))
            self.settings = settings
        self._graphs = Graphs(self._build, plan.sharing, settings, report)
        self._main = "update" if layout.training else "forward"
        self._results: dict[int, StepResult] = {}  # of drained steps: their staging is used again
        self._borrowed: dict[tuple[int, str], tuple[Floats | None, ...]] = {}
        self._rooms: dict[tuple[int, tuple[int, ...], str], Floats] = {}  # of staged data
        self._input_rooms = [
            [{name: self._view(it) for name, it in own.inputs.items()} for own in step]
            for step in self._build.staging
        ]
        self._stage_constants()

    def parameters(self) -> dict[str, Floats]:
        """Copies of all parameters, dense."""
        self.drain()
        return {
            name: unpack_parameter(
                parameter, self._flat(parameter.stored.address, parameter.floats)
            )
            for name, parameter in self._build.parameters.items()
        }

    def set_parameters(self, values: ByName) -> None:
        """Set parameters by name, and what follows from them."""
        self.drain()
        for name, array in values.items():
            parameter = self._build.parameters[name]
            self._flat(parameter.stored.address, parameter.floats)[...] = pack_parameter(
                parameter, array
            )
        self._graphs.run("derive")

    def states(self) -> dict[str, Floats]:
        """Copies of the optimiser's buffers by `parameter/buffer`."""
        self.drain()
        return {
            key: unpack_parameter(self._build.parameters[name], self._state(name, index))
            for key, (name, index) in self._state_keys().items()
        }

    def set_states(self, values: ByName) -> None:
        """Set the optimiser's buffers."""
        self.drain()
        for key, (name, index) in self._state_keys().items():
            packed = pack_parameter(self._build.parameters[name], values[key])
            self._state(name, index)[...] = packed

    def forward(self, inputs: ByName, iteration: int) -> dict[str, Floats]:
        """Values of the output nodes, without dropout."""
        self.drain()
        count, together = len(self.layout.numbers), self.layout.replicas
        found: list[dict[str, Floats]] = []
        for first in range(0, count, together):
            now = range(first, min(first + together, count))
            for place, microbatch in enumerate(now):
                self._stage_inputs(0, place, self._microbatch(inputs, microbatch))
            self._build.parity = 0
            self._graphs.run("forward")
            found += [self._outputs(place) for place in range(len(now))]
        return joined(found)

    def staged(self) -> dict[str, Floats]:
        """Where `run` finds the inputs."""
        self.drain()
        return dict(self._input_rooms[0][0])

    def run(self) -> dict[str, Floats]:
        """Values of the output nodes for what is staged, in the engine's own memory where planar."""
        self.drain()
        self._build.parity = 0
        self._graphs.run("forward")
        found = {node.name: self._build.value(node.name) for node in self.layout.network.outputs}
        return {
            name: self._view(tensor) if tensor.lanes == 1 else self._images(name)
            for name, tensor in found.items()
        }

    def gradients(
        self, inputs: ByName, targets: ByName, weights: ByName, iteration: int
    ) -> tuple[StepResult, dict[str, Floats]]:
        """Loss and gradients, without an update; of all ranks, which must come here together."""
        self.drain()
        self._stage(0, inputs, iteration)
        self._stage_normalizers(0, self._stage_targets(0, targets, weights, borrow=True))
        self._graphs.run(self._graphs.add_gradients())
        results = self._results_by_output(0, len(self.layout.numbers))
        gradients = {
            name: unpack_parameter(parameter, self._flat(parameter.gradient, parameter.floats))
            for name, parameter in self._build.parameters.items()
            if parameter.learned
        }
        if party := self.settings.party:
            results, gradients = party.added_pairs(results), party.added_arrays(gradients)
        return _added(results, self.settings.losses), gradients

    def submit(
        self,
        inputs: ByName,
        targets: ByName,
        weights: ByName,
        learning_rate: float,
        iteration: int,
        *,
        borrow: bool,
    ) -> int:
        """Start one update once the step before the last is complete; returns its ticket.

        `borrow`: targets and weights are read where they are and must stay until the result is known.
        """
        ticket, parity = self._submitted, self._submitted % STEPS
        self._graphs.finish("update", parity)
        if ticket >= STEPS:
            self.result(ticket - STEPS)  # which has its place in what is staged now
        self._results.pop(ticket - KEPT, None)
        self._stage(parity, inputs, iteration)
        self._stage_normalizers(
            parity, self._stage_targets(parity, targets, weights, borrow=borrow)
        )
        self._stage_hyper(parity, learning_rate, iteration)
        self._graphs.release("update", parity)
        return ticket

    def result(self, ticket: int) -> StepResult:
        """Loss and error of one of the last `KEPT` submitted updates, as soon as they are known."""
        refuse_ticket(ticket, self._submitted)
        if ticket not in self._results:
            self._graphs.wait_for_loss("update", ticket % STEPS)
            # Ranks have added up all microbatches in the results of their first ones.
            count = 1 if self.settings.party else len(self.layout.numbers)
            results = self._results_by_output(ticket % STEPS, count)
            self._results[ticket] = _added(results, self.settings.losses)
        return self._results[ticket]

    def drain(self) -> None:
        """Wait until every submitted update is complete, and keep the results."""
        self._graphs.drain()
        for ticket in range(max(0, self._submitted - STEPS), self._submitted):
            self.result(ticket)

    def first_non_finite(self) -> str | None:
        """The first node, in the order of the data, or else parameter that holds NaN or Inf.

        Nodes get the values of what was staged last anew.
        """
        self.drain()
        for node, microbatch in self._graphs.node_by_node():
            if not np.isfinite(self._images(node, microbatch)).all():
                return node
        for name, parameter in self._build.parameters.items():
            if not np.isfinite(self._flat(parameter.stored.address, parameter.floats)).all():
                return name
        return None

    @property
    def _submitted(self) -> int:
        """How many updates have started, whatever has interrupted them."""
        return sum(self._graphs.released("update", parity) for parity in range(STEPS))

    def task_graph(self) -> TaskGraph:
        """The task graph of an even and an odd update; of a forward pass without training."""
        return self._graphs.executor(self._main).graph

    def recording(self) -> list[WorkerRecording]:
        """What each worker did in runs of `task_graph` since the start."""
        self.drain()
        return self._graphs.executor(self._main).recording()

    def close(self) -> None:
        """Stop the workers; the engine cannot be used afterwards."""
        self._graphs.close()

    def _stage_constants(self) -> None:
        """What losses read that stays as it is."""
        for staging, *_ in self._build.staging:
            for name, address in staging.classes.items():
                images = self.layout.network.node(name).channels
                objective = self.settings.losses[name]
                self._room(address, (images,))[...] = objective.class_weights(images)
                table = objective.loss.table(objective.keys)
                self._room(staging.tables[name], (len(table),), "i8")[...] = table

    def _microbatch(self, arrays: ByName, microbatch: int) -> dict[str, Floats]:
        """The samples of one microbatch, not copied."""
        own = slice(microbatch * self.layout.batch, (microbatch + 1) * self.layout.batch)
        return {name: array[own] for name, array in arrays.items()}

    def _stage_inputs(self, parity: int, microbatch: int, inputs: ByName) -> None:
        for name, array in inputs.items():
            self._input_rooms[parity][microbatch][name][...] = array

    def _stage(self, parity: int, inputs: ByName, iteration: int) -> None:
        self._build.parity = parity
        for microbatch in range(len(self.layout.numbers)):
            self._stage_inputs(parity, microbatch, self._microbatch(inputs, microbatch))
        self._room(self._build.staging[parity][0].iteration, (1,), "i8")[0] = iteration

    def _stage_targets(
        self, parity: int, targets: ByName, weights: ByName, *, borrow: bool
    ) -> dict[str, tuple[float, float]]:
        """Targets and weights of all microbatches; what they weigh together."""
        for name, array in targets.items():
            self._borrowed[parity, name] = (array, weights.get(name)) if borrow else ()
        totals: dict[str, list[tuple[float, float]]] = {name: [] for name in targets}
        for microbatch, staging in enumerate(self._build.staging[parity]):
            own = self._microbatch(weights, microbatch)
            for name, array in self._microbatch(targets, microbatch).items():
                weight = own.get(name)
                places = self._room(staging.places[name], (2,), "i8")
                places[0] = self._place(array, staging.targets[name], borrow)
                places[1] = (
                    0 if weight is None else self._place(weight, staging.weights[name], borrow)
                )
                totals[name].append(self.settings.losses[name].total_weights(array, weight))
        return {name: added_pairs(pairs) for name, pairs in totals.items()}

    def _stage_normalizers(self, parity: int, totals: Mapping[str, tuple[float, float]]) -> None:
        """By what sums of losses and of what is wrong are multiplied, from what all samples here weigh."""
        party = self.settings.party
        totals = party.added_pairs(totals) if party else totals
        for name, pair in totals.items():
            room = self._room(self._build.staging[parity][0].normalizers[name], (2,))
            factor = self.settings.losses[name].factor
            room[...] = [factor / total if total else 0.0 for total in pair]

    def _place(self, array: Floats, room: int, borrow: bool) -> int:
        """Address of an array's values: its own, or that of a copy."""
        if borrow and array.flags.c_contiguous:
            return int(array.ctypes.data)
        self._room(room, array.shape)[...] = array
        return room

    def _room(self, address: int, shape: tuple[int, ...], dtype: str = "f4") -> Floats:
        """A view of staged data: made once, as the time in Python between two steps is a core's."""
        key = address, shape, dtype
        if key not in self._rooms:
            self._rooms[key] = self._arena.view(address, shape, dtype)
        return self._rooms[key]

    def _stage_hyper(self, parity: int, learning_rate: float, iteration: int) -> None:
        staging, optimizer = self._build.staging[parity][0], self.settings.optimizer
        for address, decay in ((staging.hyper, True), (staging.hyper_biases, False)):
            values = optimizer.hyperparameters(learning_rate, iteration + 1, decay=decay)
            self._room(address, (len(values),), "f8")[...] = values

    def _results_by_output(self, parity: int, microbatches: int) -> dict[str, tuple[float, float]]:
        """Loss and error, added up over the first microbatches."""
        staged = self._build.staging[parity][:microbatches]
        return {
            name: added_pairs([self._pair(own.results[name].address) for own in staged])
            for name in staged[0].results
        }

    def _pair(self, address: int) -> tuple[float, float]:
        loss, error = self._arena.view(address, (2,), "f8")
        return loss, error

    def _state_keys(self) -> dict[str, tuple[str, int]]:
        return {
            f"{name}/{state}": (name, index)
            for name, parameter in self._build.parameters.items()
            if parameter.states
            for index, state in enumerate(self.settings.optimizer.state_names)
        }

    def _state(self, name: str, index: int) -> Floats:
        parameter = self._build.parameters[name]
        return self._flat(parameter.states[index], parameter.floats)

    def _flat(self, address: int, floats: int) -> Floats:
        return self._arena.view(address, (floats,)).view(np.float32)

    def _outputs(self, microbatch: int) -> dict[str, Floats]:
        """Copies of the outputs of one microbatch."""
        nodes = self.layout.network.outputs
        return {node.name: self._images(node.name, microbatch) for node in nodes}

    def _images(self, node: str, microbatch: int = 0) -> Floats:
        """A copy of a node's images (batch, channel, z, y, x) as last computed."""
        tensor = self._build.of(microbatch, 0).value(node)
        view = self._view(tensor)
        if tensor.lanes == 1:
            return view.copy()
        shape = (tensor.batch, tensor.blocks * tensor.lanes, *tensor.shape)
        planar = np.moveaxis(view, -1, 2).copy().reshape(shape)  # of one voxel it were a view
        return np.ascontiguousarray(planar[:, : tensor.channels])

    def _view(self, tensor: Tensor) -> Floats:
        """A tensor's memory as (batch, block, z, y, x, lane), or (batch, channel, z, y, x) if planar."""
        shape = [tensor.batch, tensor.blocks, *tensor.shape]
        strides = [tensor.batch_stride, tensor.block_stride, tensor.z_stride, tensor.y_stride]
        strides.append(tensor.lanes)
        if tensor.lanes > 1:
            shape.append(tensor.lanes)
            strides.append(1)
        whole = self._flat(tensor.address, 1)
        return np.lib.stride_tricks.as_strided(whole, shape, [4 * stride for stride in strides])


def _added(results: Mapping[str, tuple[float, float]], losses: Objectives) -> StepResult:
    """Loss and error of all outputs together."""
    totals, errors = zip(*results.values(), strict=True)
    return StepResult(float(sum(totals)), float(sum(errors)) / total_factor(losses))
