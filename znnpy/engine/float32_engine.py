"""The float32 engine: stages arrays and the learning rate, releases steps on native threads (two in flight)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from znnpy.engine.execution import Graphs, compile_planned
from znnpy.engine.hand_over import HandOver
from znnpy.engine.memory.allocation import STEPS, Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.arrays import ByName, Floats
from znnpy.engine.memory.filter_file import FilterFile, words_of
from znnpy.engine.memory.parameters import Parameter, pack_parameter, unpack_parameter
from znnpy.engine.memory.views import dense_of, floats_at, view_of
from znnpy.engine.memory_planning import MemoryPlan
from znnpy.engine.progress import Report
from znnpy.engine.staged_step import Pairs, StagedStep, microbatch_of
from znnpy.engine.step_result import KEPT, StepResult, refuse_ticket
from znnpy.engine.step_tasks import Settings
from znnpy.file_arrays import FileArray
from znnpy.graph import TaskGraph
from znnpy.network.objectives import total_factor
from znnpy.scheduler.recording import WorkerRecording

MANY = 4 << 20
"""Floats of parameters, packed in 15 ms, that are worth threads."""
MOST_PACKING = 4
"""Threads that pack: each has an array of its own, and memory is as fast for few."""


class SingleEngine:
    """Runs a planned layout's task graphs. Arrays come checked, by node name; one caller at a time."""

    dtype = np.float32

    def __init__(self, plan: MemoryPlan, settings: Settings, report: Report | None = None) -> None:
        layout = plan.layout
        self.layout, self.settings = layout, settings
        self.bytes, self.connected_before = plan.bytes, plan.connected is not None
        self._arena = Arena.of(plan.arena, plan.sharing, large_pages=not layout.lean)
        self._build = Build.new(
            self._arena, layout, settings.states, plan.workspace, settings.frozen
        )
        self._file: FilterFile | None = None
        if self._build.file:
            own = [it.shape for it in self._build.parameters.values() if it.place is not None]
            words = self._arena.view(self._build.file, (words_of(len(own)),), "i8")
            self._file = FilterFile(words, own)
        if settings.party:
            settings.party.in_turn(partial(compile_planned, plan, settings, report))
            # Windows cover parameters and gradients, which must have their addresses and hold
            # nothing yet.
            settings = replace(settings, party=settings.party.seeing(self._build))
            self.settings = settings
        self._graphs = Graphs(self._build, plan, settings, report)
        self._factor = total_factor(settings.losses)
        # Losses and errors of drained steps: their staging is used again.
        self._results: dict[int, Pairs] = {}
        self._filled: Sequence[ByName] = ()  # outputs that a forward pass fills
        self._staged = [
            StagedStep(self._arena, layout, own, settings.losses, settings.clip_norm)
            for own in self._build.staging
        ]
        self.quick: HandOver | None = None  # by which updates are started, if it is there and ready
        self._asked = False  # whether there may be one

    def parameters(self) -> dict[str, Floats]:
        """Return copies of all parameters, by name."""
        self.drain()
        return {name: self._stored(parameter) for name, parameter in self._build.parameters.items()}

    def set_parameters(self, values: dict[str, Floats | FileArray]) -> None:
        """Set parameters by name, which are taken out of `values`, and recompute what is derived from filters."""
        self.drain()
        # Ctrl-C may leave tasks that derive.
        self._other_graph()
        for name in [*values]:
            place = self._build.parameters[name].place
            if self._file and place is not None:
                self._file.set(place, values.pop(name))
        self._pack(values)
        # Filters that were set directly have spectra and copies of the old ones.
        self._graphs.run("derive")

    def _pack(self, values: dict[str, Floats | FileArray]) -> None:
        """Write parameters to memory: many by several threads, as most of that, and reading them, needs no Python."""

        def pack(name: str) -> None:
            parameter = self._build.parameters[name]
            # Each goes as soon as it is set, if nobody else keeps it: all of them twice may be the most memory that a
            # prediction takes.
            target = self._flat(parameter.stored.address, parameter.floats)
            pack_parameter(parameter, np.asarray(values.pop(name)), target)

        names, floats = [*values], sum(self._build.parameters[it].floats for it in values)
        threads = min(self.settings.threads, MOST_PACKING) if floats >= MANY else 1
        if threads < 2:
            for name in names:
                pack(name)
            return
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(pack, names):
                pass  # what one of them raises is raised here

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
        # The next update is not handed over before it is known whether all are set.
        self._other_graph()
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
                self._staged[0].stage_inputs(self._microbatch(inputs, microbatch), place)
            # The forward graph was declared with the even step's staging.
            self._build.parity = 0
            self._run_forward([self._microbatch(found, microbatch) for microbatch in now])
        return found

    def ready(self) -> None:
        """Make the executor of the main graph, unless it is there."""
        self._graphs.executor(self._graphs.main)

    def staged(self) -> dict[str, Floats]:
        """Return views of the memory from which `run` reads the inputs."""
        self.drain()
        return dict(self._staged[0].inputs())

    def run(self) -> dict[str, Floats]:
        """Return the output nodes' values for the staged inputs; planar ones are views of the engine's memory."""
        self.drain()
        self._build.parity = 0
        self._staged[0].take_inputs()
        found = self._empty_outputs(self.layout.batch)
        for name in found:
            if (tensor := self._build.value(name)).lanes == 1:
                found[name] = view_of(self._arena, tensor)
        self._run_forward([found])
        return found

    def gradients(
        self, inputs: ByName, targets: ByName, weights: ByName, iteration: int
    ) -> tuple[StepResult, dict[str, Floats]]:
        """Return loss and gradients without an update; over all ranks, which must call it together."""
        self.drain()
        totals = self._stage(0, inputs, targets, weights, borrow=True)
        self._staged[0].stage_numbers(iteration, totals)
        self._other_graph()
        self._graphs.run("gradients")
        results = self._staged[0].results(len(self.layout.numbers))
        gradients = {
            name: unpack_parameter(parameter, self._flat(parameter.gradient, parameter.floats))
            for name, parameter in self._build.parameters.items()
            if parameter.learned
        }
        if party := self.settings.party:
            # By the same tree as in an update, so that both have the same bits.
            results, gradients = party.added_pairs(results), party.added_arrays(gradients)
        return _added(results, self._factor), gradients

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
        ticket = self.submitted
        parity = ticket % STEPS
        # Of what was read the loss is known.
        self._graphs.finish("update", parity, loss=ticket - STEPS not in self._results)
        for name in ("forward", "gradients"):
            # An interrupt may have left their tasks running, which read the first update's inputs.
            self._graphs.finish(name, 0)
        if ticket >= STEPS:
            self._read(ticket - STEPS)  # before its staging buffers are overwritten
        # Bounded, as a run has millions of updates.
        self._results.pop(ticket - KEPT, None)
        totals = self._stage(parity, inputs, targets, weights, borrow=borrow)
        hyper = self.settings.optimizer.hyperparameters(learning_rate, iteration + 1)
        self._staged[parity].stage_numbers(iteration, totals, hyper)
        # Last: from here on tasks read what was staged.
        self._graphs.release("update", parity)
        # No other graph has work left, so that the next one may be handed over quickly.
        if not self._asked:
            self.quick = HandOver.of(
                self._build, self.settings, self._graphs, self._staged, self._results
            )
            self._asked = True
        elif self.quick:
            self.quick.renew()
        return ticket

    def _other_graph(self) -> None:
        """Note that another graph than that of updates may have work, which an interrupt may leave."""
        if self.quick:
            self.quick.ready = False

    def result(self, ticket: int) -> StepResult:
        """Return loss and error of one of the last `KEPT` submitted updates, as soon as they are known."""
        if ticket not in self._results:
            refuse_ticket(ticket, self.submitted)
            self._graphs.wait_for_loss("update", ticket % STEPS)
            self._read(ticket)
        return _added(self._results[ticket], self._factor)

    def loss(self, ticket: int) -> float:
        """Return the loss of `result` alone."""
        known = self._results.get(ticket)
        if known is None or len(known) > 1:
            return self.result(ticket).loss
        ((loss, _),) = known.values()
        return loss

    def _read(self, ticket: int) -> None:
        """Keep the result of an update whose loss is known, unless it is kept."""
        if ticket not in self._results:
            # Ranks have added up all microbatches in the results of their first ones.
            count = 1 if self.settings.party else len(self.layout.numbers)
            self._results[ticket] = self._staged[ticket % STEPS].results(count)

    def drain(self) -> None:
        """Wait until every submitted update is complete, and keep the results."""
        self._graphs.drain()
        # Only these may still lie in staging buffers; older ones were read when theirs were used
        # again.
        for ticket in range(max(0, self.submitted - STEPS), self.submitted):
            self.result(ticket)

    def first_non_finite(self) -> str | None:
        """Return the first node in topological order, or else parameter, that holds NaN or Inf; None if none does.

        Runs the forward pass of what was staged last once more.
        """
        self.drain()
        for node, microbatch in self._graphs.node_by_node():
            tensor = self._build.of(microbatch, 0).value(node)
            if not np.isfinite(dense_of(self._arena, tensor)).all():
                return node
        for name, parameter in self._build.parameters.items():
            if not np.isfinite(self._stored(parameter)).all():
                return name
        return None

    @property
    def submitted(self) -> int:
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
        if self._file:
            self._file.close()

    def _stage(
        self, parity: int, inputs: ByName, targets: ByName, weights: ByName, *, borrow: bool
    ) -> Pairs:
        """Stage arrays; return the sums of weights by output, of all ranks."""
        self._build.parity = parity
        own, party = self._staged[parity], self.settings.party
        # Inputs that are packed again later must stay until then.
        own.stage(inputs, borrow=borrow and not self._build.again)
        totals = own.stage_targets(targets, weights, borrow=borrow)
        return party.added_pairs(totals) if party else totals

    def _microbatch(self, arrays: ByName, number: int) -> dict[str, Floats]:
        """Return views of the samples of one microbatch."""
        return microbatch_of(arrays, number, self.layout.batch)

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

    def _stored(self, parameter: Parameter) -> Floats:
        """Return a copy of a parameter as users have it."""
        if self._file and parameter.place is not None:
            return self._file.read(parameter.place)
        packed = self._flat(parameter.stored.address, parameter.floats)
        return unpack_parameter(parameter, packed)

    def _flat(self, address: int, floats: int) -> Floats:
        return floats_at(self._arena, address, floats)

    def _empty_outputs(self, samples: int) -> dict[str, Floats]:
        """Return arrays for the values of outputs, (batch, channel, z, y, x)."""
        return {
            node.name: np.empty((samples, node.channels, *self.layout.shape(node.name)), np.float32)
            for node in self.layout.network.outputs
        }

    def _run_forward(self, outputs: Sequence[ByName]) -> None:
        """Run the forward pass of what is staged; fill the arrays of each microbatch with the values of outputs."""
        for place in range(self._staged[0].microbatches):
            self._staged[0].show_outputs(outputs[place] if place < len(outputs) else {}, place)
        # Tasks that an interrupt leaves running still write there: until the next pass has waited for them.
        self._filled = outputs
        self._other_graph()
        if self._file:
            self._file.check()
        self._graphs.run("forward")
        self._filled = ()
        if self._file:
            self._file.check()
        for place, arrays in enumerate(outputs):
            for name, array in arrays.items():
                tensor = self._build.of(place, 0).value(name)
                # What is seen as it lies is there already.
                if tensor.lanes == 1 and array.ctypes.data != tensor.address:
                    array[...] = view_of(self._arena, tensor)


def _added(results: Mapping[str, tuple[float, float]], factor: float) -> StepResult:
    """Return loss and error of all outputs together; `factor`: the sum of those of the outputs."""
    loss = error = 0.0
    for own, wrong in results.values():
        loss, error = loss + own, error + wrong
    return StepResult(loss, error / factor, {name: loss for name, (loss, _) in results.items()})
