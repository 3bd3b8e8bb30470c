"""The float32 engine: stages arrays and the learning rate, releases steps on native threads (two in flight)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from znnpy.engine.execution import Graphs, compile_planned
from znnpy.engine.memory.allocation import STEPS, Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.arrays import ByName, Floats
from znnpy.engine.memory.parameters import pack_parameter, unpack_parameter
from znnpy.engine.memory.staging import SHARE_AT
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
        self._build = Build.new(
            self._arena, layout, settings.states, plan.workspace, settings.frozen
        )
        if settings.party:
            # Rank 0 compiles before the others begin, so that they find kernels on disk instead of
            # compiling the same ones at once.
            if settings.party.rank == 0:
                compile_planned(plan, settings, report)
            settings.party.tell(layout.plan)  # the other ranks wait for it in `planned`
            # Windows cover parameters and gradients, which must have their addresses and hold
            # nothing yet.
            settings = replace(settings, party=settings.party.seeing(self._build))
            self.settings = settings
        self._graphs = Graphs(self._build, plan, settings, report)
        self._results: dict[int, StepResult] = {}  # of drained steps: their staging is used again
        self._borrowed: dict[tuple[int, str], tuple[Floats | None, ...]] = {}
        # Inputs that are packed where they lie, by parity, microbatch and node.
        self._sources: dict[tuple[int, int, str], Floats] = {}
        self._filled: Sequence[ByName] = ()  # outputs that a forward pass fills
        self._rooms: dict[tuple[int, tuple[int, ...], str], Floats] = {}  # of staged data
        self._input_rooms = [
            [{name: self._view(it) for name, it in own.inputs.items()} for own in step]
            for step in self._build.staging
        ]
        self._stage_constants()

    def parameters(self) -> dict[str, Floats]:
        """Return copies of all parameters, by name."""
        self.drain()
        return {
            name: unpack_parameter(
                parameter, self._flat(parameter.stored.address, parameter.floats)
            )
            for name, parameter in self._build.parameters.items()
        }

    def set_parameters(self, values: dict[str, Floats]) -> None:
        """Set parameters by name, which are taken out of `values`, and recompute what is derived from filters."""
        self.drain()
        for name in list(values):
            parameter = self._build.parameters[name]
            # Each goes as soon as it is set, if nobody else keeps it: all of them twice may be the most memory that a
            # prediction takes.
            pack_parameter(
                parameter, values.pop(name), self._flat(parameter.stored.address, parameter.floats)
            )
        # Filters that were set directly have spectra and copies of the old ones.
        self._graphs.run("derive")

    def states(self) -> dict[str, Floats]:
        """Return copies of the optimiser's buffers by `parameter/buffer`."""
        self.drain()
        return {
            key: unpack_parameter(self._build.parameters[name], self._state(name, index))
            for key, (name, index) in self._state_keys().items()
        }

    def set_states(self, values: ByName) -> None:
        """Set the optimiser's buffers."""
        self.drain()
        for key, (name, index) in self._state_keys().items():
            pack_parameter(self._build.parameters[name], values[key], self._state(name, index))

    def forward(self, inputs: ByName, iteration: int) -> dict[str, Floats]:
        """Return copies of the output nodes' values, without dropout."""
        self.drain()
        count, together = len(self.layout.numbers), self.layout.replicas
        found = self._empty_outputs(self.layout.samples)
        # As many microbatches at a time as have feature maps of their own.
        for first in range(0, count, together):
            now = range(first, min(first + together, count))
            for place, microbatch in enumerate(now):
                self._stage_inputs(0, place, self._microbatch(inputs, microbatch), borrow=True)
            # The forward graph was declared with the even step's staging.
            self._build.parity = 0
            self._run_forward([self._microbatch(found, microbatch) for microbatch in now])
        return found

    def staged(self) -> dict[str, Floats]:
        """Return views of the memory from which `run` reads the inputs."""
        self.drain()
        return dict(self._input_rooms[0][0])

    def run(self) -> dict[str, Floats]:
        """Return the output nodes' values for the staged inputs; planar ones are views of the engine's memory."""
        self.drain()
        self._build.parity = 0
        for name in self._input_rooms[0][0]:
            self._read_staged(0, 0, name)
        found = self._empty_outputs(self.layout.batch)
        for name in found:
            if (tensor := self._build.value(name)).lanes == 1:
                found[name] = self._view(tensor)
        self._run_forward([found])
        return found

    def gradients(
        self, inputs: ByName, targets: ByName, weights: ByName, iteration: int
    ) -> tuple[StepResult, dict[str, Floats]]:
        """Return loss and gradients without an update; over all ranks, which must call it together."""
        self.drain()
        self._stage(0, inputs, iteration, borrow=True)
        self._stage_normalizers(0, self._stage_targets(0, targets, weights, borrow=True))
        self._graphs.run("gradients")
        results = self._results_by_output(0, len(self.layout.numbers))
        gradients = {
            name: unpack_parameter(parameter, self._flat(parameter.gradient, parameter.floats))
            for name, parameter in self._build.parameters.items()
            if parameter.learned
        }
        if party := self.settings.party:
            # By the same tree as in an update, so that both have the same bits.
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

        `borrow`: arrays are read where they are, if they can be, and must stay until the result is known.
        """
        # Even and odd updates alternate: one is staged while the other runs, so at most STEPS are
        # in flight.
        ticket, parity = self._submitted, self._submitted % STEPS
        self._graphs.finish("update", parity)
        for name in ("forward", "gradients"):
            # An interrupt may have left their tasks running, which read the first update's inputs.
            self._graphs.finish(name, 0)
        if ticket >= STEPS:
            self.result(ticket - STEPS)  # read before its staging buffers are overwritten
        # Bounded, as a run has millions of updates.
        self._results.pop(ticket - KEPT, None)
        # Inputs that are packed again later must stay until then.
        self._stage(parity, inputs, iteration, borrow=borrow and not self._build.again)
        self._stage_normalizers(
            parity, self._stage_targets(parity, targets, weights, borrow=borrow)
        )
        self._stage_hyper(parity, learning_rate, iteration)
        # Last: from here on tasks read what was staged.
        self._graphs.release("update", parity)
        return ticket

    def result(self, ticket: int) -> StepResult:
        """Return loss and error of one of the last `KEPT` submitted updates, as soon as they are known."""
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
        # Only these may still lie in staging buffers; older ones were read when theirs were used
        # again.
        for ticket in range(max(0, self._submitted - STEPS), self._submitted):
            self.result(ticket)

    def first_non_finite(self) -> str | None:
        """Return the first node in topological order, or else parameter, that holds NaN or Inf; None if none does.

        Runs the forward pass of what was staged last once more.
        """
        self.drain()
        for node, microbatch in self._graphs.node_by_node():
            if not np.isfinite(self._dense(node, microbatch)).all():
                return node
        for name, parameter in self._build.parameters.items():
            if not np.isfinite(self._flat(parameter.stored.address, parameter.floats)).all():
                return name
        return None

    @property
    def _submitted(self) -> int:
        """How many updates have started; right even if Ctrl-C interrupted one's caller."""
        return sum(self._graphs.released("update", parity) for parity in range(STEPS))

    def task_graph(self) -> TaskGraph:
        """Return the task graph of an even and an odd update; of a forward pass without training."""
        return self._graphs.executor(self._graphs.main).graph

    def recording(self) -> list[WorkerRecording]:
        """Return what each worker did in runs of `task_graph` since the start."""
        self.drain()
        return self._graphs.executor(self._graphs.main).recording()

    def close(self) -> None:
        """Stop the workers; the engine cannot be used afterwards."""
        self._graphs.close()

    def _stage_constants(self) -> None:
        """Stage what losses read and never changes: class weights and tables."""
        for parity, step in enumerate(self._build.staging):
            for microbatch, own in enumerate(step):
                for name in own.inputs:
                    self._read_staged(parity, microbatch, name)
        for staging, *_ in self._build.staging:
            for name, address in staging.classes.items():
                channels = self.layout.network.node(name).channels
                objective = self.settings.losses[name]
                self._room(address, (channels,))[...] = objective.class_weights(channels)
                table = objective.loss.table(objective.keys)
                self._room(staging.tables[name], (len(table),), "i8")[...] = table

    def _microbatch(self, arrays: ByName, microbatch: int) -> dict[str, Floats]:
        """Return views of the samples of one microbatch."""
        own = slice(microbatch * self.layout.batch, (microbatch + 1) * self.layout.batch)
        return {name: array[own] for name, array in arrays.items()}

    def _stage_inputs(
        self, parity: int, microbatch: int, inputs: ByName, *, borrow: bool = False
    ) -> None:
        for name, array in inputs.items():
            # What lies planar is read as it is staged, among the zeros of its frame.
            if borrow and array.flags.c_contiguous and not self.layout.stays_planar(name):
                # Kept alive until this is staged again.
                self._sources[parity, microbatch, name] = array
                place = self._build.staging[parity][microbatch].sources[name]
                self._room(place, (1,), "i8")[0] = self._address(array)
            else:
                self._input_rooms[parity][microbatch][name][...] = array
                self._read_staged(parity, microbatch, name)

    def _read_staged(self, parity: int, microbatch: int, name: str) -> None:
        """Let tasks pack what is staged of an input."""
        staging = self._build.staging[parity][microbatch]
        self._sources.pop((parity, microbatch, name), None)
        self._room(staging.sources[name], (1,), "i8")[0] = staging.inputs[name].address

    def _stage(self, parity: int, inputs: ByName, iteration: int, *, borrow: bool) -> None:
        self._build.parity = parity
        for microbatch in range(len(self.layout.numbers)):
            own = self._microbatch(inputs, microbatch)
            self._stage_inputs(parity, microbatch, own, borrow=borrow)
        self._room(self._build.staging[parity][0].iteration, (1,), "i8")[0] = iteration

    def _stage_targets(
        self, parity: int, targets: ByName, weights: ByName, *, borrow: bool
    ) -> dict[str, tuple[float, float]]:
        """Stage targets and weights of all microbatches; return by output their total weights."""
        for name, array in targets.items():
            # Keeps borrowed arrays alive until the next step of this parity.
            self._borrowed[parity, name] = (array, weights.get(name)) if borrow else ()
        totals: dict[str, list[tuple[float, float]]] = {name: [] for name in targets}
        for microbatch, staging in enumerate(self._build.staging[parity]):
            own = self._microbatch(weights, microbatch)
            for name, array in self._microbatch(targets, microbatch).items():
                weight = own.get(name)
                # Tasks have the address of these two words, not of the arrays, which may lie
                # elsewhere in each step.
                places = self._room(staging.places[name], (2,), "i8")
                places[0] = self._place(array, staging.targets[name], borrow)
                places[1] = (
                    0 if weight is None else self._place(weight, staging.weights[name], borrow)
                )
                totals[name].append(self.settings.losses[name].total_weights(array, weight))
        return {name: added_pairs(pairs) for name, pairs in totals.items()}

    def _stage_normalizers(self, parity: int, totals: Mapping[str, tuple[float, float]]) -> None:
        """Stage the factors by which sums of losses and of wrong voxels become means, from the total weights."""
        party = self.settings.party
        totals = party.added_pairs(totals) if party else totals
        for name, pair in totals.items():
            room = self._room(self._build.staging[parity][0].normalizers[name], (2,))
            factor = self.settings.losses[name].factor
            # Nothing that counts: loss and gradient are 0 rather than NaN.
            room[...] = [factor / total if total else 0.0 for total in pair]

    def _place(self, array: Floats, room: int, borrow: bool) -> int:
        """Return the address of an array's values: its own if it is borrowed, else that of a copy at `room`."""
        if borrow and array.flags.c_contiguous:
            return self._address(array)
        self._room(room, array.shape)[...] = array
        return room

    @staticmethod
    def _address(array: Floats) -> int:
        # `ctypes` would make an object of Python for it.
        return int(array.__array_interface__["data"][0])

    def _room(self, address: int, shape: tuple[int, ...], dtype: str = "f4") -> Floats:
        """Return a view of staged data; kept, since Python's time between steps keeps a core from running tasks."""
        key = address, shape, dtype
        if key not in self._rooms:
            self._rooms[key] = self._arena.view(address, shape, dtype)
        return self._rooms[key]

    def _stage_hyper(self, parity: int, learning_rate: float, iteration: int) -> None:
        staging, optimizer = self._build.staging[parity][0], self.settings.optimizer
        for address, decay in ((staging.hyper, True), (staging.hyper_biases, False)):
            values = optimizer.hyperparameters(learning_rate, iteration + 1, decay=decay)
            self._room(address, (len(values),), "f8")[...] = values
            share = optimizer.share(iteration + 1)
            self._room(address + 8 * SHARE_AT, (1,), "f8")[...] = share

    def _results_by_output(self, parity: int, microbatches: int) -> dict[str, tuple[float, float]]:
        """Return loss and error by output, summed over the first microbatches."""
        staged = self._build.staging[parity][:microbatches]
        return {
            name: added_pairs([self._pair(own.results[name].address) for own in staged])
            for name in staged[0].results
        }

    def _pair(self, address: int) -> tuple[float, float]:
        loss, error = self._room(address, (2,), "f8")
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

    def _empty_outputs(self, samples: int) -> dict[str, Floats]:
        """Return arrays for the values of outputs, (batch, channel, z, y, x)."""
        return {
            node.name: np.empty((samples, node.channels, *self.layout.shape(node.name)), np.float32)
            for node in self.layout.network.outputs
        }

    def _run_forward(self, outputs: Sequence[ByName]) -> None:
        """Run the forward pass of what is staged; fill the arrays of each microbatch with the values of outputs."""
        for place, staged in enumerate(self._build.staging[0]):
            own = outputs[place] if place < len(outputs) else {}
            for name, address in staged.outputs.items():
                array = own.get(name)
                self._room(address, (1,), "i8")[0] = 0 if array is None else array.ctypes.data
        # Tasks that an interrupt leaves running still write there: until the next pass has waited for them.
        self._filled = outputs
        self._graphs.run("forward")
        self._filled = ()
        for place, arrays in enumerate(outputs):
            for name, array in arrays.items():
                tensor = self._build.of(place, 0).value(name)
                # What is seen as it lies is there already.
                if tensor.lanes == 1 and array.ctypes.data != tensor.address:
                    array[...] = self._view(tensor)

    def _dense(self, node: str, microbatch: int = 0) -> Floats:
        """Return a copy of a node's feature map, (batch, channel, z, y, x), as last computed."""
        tensor = self._build.of(microbatch, 0).value(node)
        view = self._view(tensor)
        if tensor.lanes == 1:
            return view.copy()
        shape = (tensor.batch, tensor.blocks * tensor.lanes, *tensor.shape)
        # (batch, block, z, y, x, lane): lanes go next to their blocks, so that both together count
        # channels.
        planar = np.moveaxis(view, -1, 2).copy().reshape(shape)  # of one voxel it were a view
        # Idle lanes of the last block are left out.
        return np.ascontiguousarray(planar[:, : tensor.channels])

    def _view(self, tensor: Tensor) -> Floats:
        """Return a view of a tensor: (batch, block, z, y, x, lane), or (batch, channel, z, y, x) if planar."""
        # Strides of the tensor, not of a dense array: there may be a frame between rows, and other
        # blocks between blocks.
        shape = [tensor.batch, tensor.blocks, *tensor.shape]
        strides = [tensor.batch_stride, tensor.block_stride, tensor.z_stride, tensor.y_stride]
        strides.append(tensor.lanes)
        if tensor.lanes > 1:
            shape.append(tensor.lanes)
            strides.append(1)
        # One float to begin at; the strides lead to all others within the tensor's buffer.
        whole = self._flat(tensor.address, 1)
        return np.lib.stride_tricks.as_strided(whole, shape, [4 * stride for stride in strides])


def _added(results: Mapping[str, tuple[float, float]], losses: Objectives) -> StepResult:
    """Return loss and error of all outputs together."""
    totals, errors = zip(*results.values(), strict=True)
    each = {name: float(loss) for name, (loss, _) in results.items()}
    return StepResult(float(sum(totals)), float(sum(errors)) / total_factor(losses), each)
