"""The public model: a network of one size that can be run, differentiated and trained."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Never, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from znnpy.closing import Closing
from znnpy.distributed.buckets import Pieces
from znnpy.distributed.strategies import Strategy
from znnpy.engine.arguments import Arguments
from znnpy.engine.array_checks import Given, learning_rate_of, whole_number_of
from znnpy.engine.construction import made
from znnpy.engine.float32_engine import SingleEngine
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.layers.probabilities import probabilities
from znnpy.engine.memory.arrays import Arrays, ByName, Floats, alone
from znnpy.engine.memory_planning import (
    MemoryPlan,
    declared_graph,
    declared_layers,
    declared_touches,
    planned_with_replicas,
)
from znnpy.engine.settings import Execution, Hardware, Training
from znnpy.engine.step_result import StepResult
from znnpy.engine.thread_safety import Staging, Turn, in_turn
from znnpy.errors import ShapeError, ZnnpyError
from znnpy.file_arrays import FileArray
from znnpy.geometry import Extent, Geometry
from znnpy.graph import TaskGraph, Touched
from znnpy.learning.loss import LossKeys
from znnpy.learning.optimizers import AVERAGE, OptimizerKeys, averaged
from znnpy.network import Network, initial_parameters, parameter_shapes
from znnpy.network.folding import fold
from znnpy.network.types import Triple
from znnpy.plan import Choice, Plan
from znnpy.registry import resolved
from znnpy.scheduler.recording import WorkerRecording

if TYPE_CHECKING:
    from znnpy.engine.float64_engine import DoubleEngine

PARAMETERS, STATES = "parameters", "the optimiser's buffers"


class Model(Closing):
    """A network for one output shape and batch size, with its parameters, plan and worker threads.

    `network`: a Network, or anything `load_network` takes. `output_shape`: voxels of one output patch
    (z, y, x), one number for all three, or a dict by output node. `batch`: samples of an update or a forward pass.
    `threads`: workers (default: all cores this process may use; 0: the serial executor). `seed`: of initial
    parameters and dropout. `conv`: auto, direct, fft, spectral, winograd. `plan`: a `plan_record` to repeat instead.
    `loss`: its name or a dict of its kind and keys, as in a config, or a dict of such for each output node; the
    cross-entropies take the values of a linear output as logits, those of a logistic or softmax one as probabilities.
    `optimizer`: an Optimizer, or as in a config its name or a dict (default: sgd).
    `training`: more about updates, in a `Training`; False reserves no gradients. `hardware`: precision, memory and
    ranks, in a `Hardware`. `execution`: scheduling and recording of tasks, in an `Execution`.

    The results are bitwise the same for any number of threads. Arrays are (batch, channel, z, y, x)
    float32; copied in and out. Threads of Python may share a model: their calls come one after the other,
    each whole (with ranks in the same order on all, so of one thread); one within another, as a signal
    handler may make it, is refused. Settings are those that a config may hold, targets those that its loss
    takes; ConfigError and others, all of them ZnnpyErrors, say which are not.
    """

    def __init__(
        self,
        network: Any,
        output_shape: Extent | Mapping[str, Extent] = 12,
        batch: int = 1,
        *,
        threads: int | None = None,
        seed: int = 0,
        conv: Choice = "auto",
        plan: Mapping[str, Mapping[str, Any]] | None = None,
        loss: str | Mapping[str, Any] | LossKeys = "binomial_cross_entropy",
        optimizer: Optimizer | OptimizerKeys | str | Mapping[str, Any] | None = None,
        training: Training | bool = True,
        hardware: Hardware | None = None,
        execution: Execution | None = None,
        **unknown: Never,
    ) -> None:
        # First of all, while there are no other names in here.
        given = dict(locals())
        arguments = Arguments.of(given)
        parts = made(network, output_shape, arguments)
        self.network: Network = parts.network
        self.geometry: Geometry = parts.geometry
        self.plan: Plan = parts.plan
        self.losses, self.loss = parts.losses, arguments.losses
        self.batch, self.seed = arguments.learning.batch, arguments.learning.seed
        self.microbatch, self.threads = parts.microbatch, arguments.threads
        self._logits, self._settings, self._layout = parts.run, parts.settings, parts.layout
        self._opened: SingleEngine | DoubleEngine | None = parts.engine
        self._close = weakref.finalize(self, parts.engine.close)  # dropped, it leaves no threads
        samples, dtype = self._layout.samples, parts.engine.dtype
        self._given = Given(self.network, self.geometry, self.losses, samples, dtype)
        # Folded filters do not tell what they were made of, so a folded model keeps what was set.
        self._unfolded: dict[str, Floats] | None = {} if parts.folds else None
        party, self._staging = parts.settings.party, Staging()
        self._before, self._started = 0, 0  # updates that were said to be, and were, started
        self._turn = Turn.of(party and party.world)  # models of one world share its messages
        self._drawn = False  # whether there are parameters: drawn when they are first asked for, or set before
        # Of which some are new and others are not, as setting them has failed.
        self._torn: set[str] = set()

    @property
    def input_shape(self) -> Triple | dict[str, Triple]:
        """Voxels of the input patch (z, y, x); a dict by node when there are several inputs."""
        return alone(self.geometry.input_shapes)

    @property
    def output_shape(self) -> Triple | dict[str, Triple]:
        """Voxels of the output patch (z, y, x); a dict by node when there are several outputs."""
        return alone(self.geometry.output_shapes)

    @property
    def iteration(self) -> int:
        """How many updates were started, which dropout and the optimiser count by; may be set, to go on."""
        return self._before + self._started

    @iteration.setter
    def iteration(self, value: int) -> None:
        self._before = whole_number_of("iteration", value) - self._started

    @property
    def strategy(self) -> Strategy | None:
        """How ranks add up; None for a model of one."""
        party = self._settings.party
        return party.strategy if party else None

    @property
    def moves(self) -> bool:
        """Whether parameters are moved here, and not by rank 0 for all ranks (strategy `tree`)."""
        party = self._settings.party
        return party.moves if party else True

    @property
    def samples(self) -> range:
        """Which samples of each update are computed here: those that `submit` and `step` take."""
        first = self._layout.numbers.start * self._layout.batch
        return range(first, first + self._layout.samples)

    @property
    def field_of_view(self) -> Triple | dict[str, Triple]:
        """The receptive field (field of view): input voxels that one output voxel sees (z, y, x)."""
        return alone(self.geometry.fields_of_view)

    @property
    def in_flight(self) -> int:
        """How many microbatches may be under way at once: with memory of its own for each."""
        return self._layout.replicas

    @property
    def connected_before(self) -> bool:
        """Whether its task graph is one that an earlier model of this machine has connected and kept."""
        return self._open.connected_before

    @property
    def memory(self) -> int:
        """Planned peak in bytes: everything that tasks touch, and the tasks themselves."""
        return self._open.bytes

    @property
    def plan_record(self) -> dict[str, Any]:
        """Algorithm per layer and pass, JSON-able; give it back as `plan=` for the same bits."""
        return self.plan.to_record()

    @property
    @in_turn
    def parameters(self) -> dict[str, Floats]:
        """Copies of all that a network keeps.

        Filters (out, in, z, y, x) by edge, biases (out,) by node, `node.scale`, `node.running_mean` ... (out,).
        """
        engine = self._engine
        if self._unfolded is not None:
            return {name: array.copy() for name, array in self._unfolded.items()}
        return engine.parameters()

    @in_turn
    def set_parameters(self, values: Mapping[str, ArrayLike]) -> None:
        """Set some or all `parameters`; ShapeError for unknown names and wrong shapes.

        Filters that repeat get the mean over each block of equal taps. Where this fails half-way, as by a full disk or
        Ctrl-C, the model computes nothing (ZnnpyError) until all are set.
        """
        given, opened = self._given.parameters(values), self._open
        # All that are set need not be drawn, which takes time and as much memory again.
        if given.keys() != parameter_shapes(self.network).keys():
            opened = self._engine
        self._set(opened, given)

    @in_turn
    def take_parameters(self, values: dict[str, Floats | FileArray]) -> None:
        """Set all `parameters` and empty `values`, as `set_parameters` does, for half of the memory.

        Arrays that only `values` holds go one by one, as the model has them; a model that takes little memory
        (`Execution.lean`) reads what lies in a file from there. ShapeError, and `values` stays, where one is missing,
        or it is no dict.
        """
        if not isinstance(values, dict):
            raise ShapeError(
                f"take_parameters: must be a dict, which is emptied; found {type(values).__name__}, as set_parameters "
                "takes"
            )
        given = self._given.parameters(values)
        if missing := sorted(parameter_shapes(self.network).keys() - given.keys()):
            raise ShapeError(f"take_parameters: no {missing[0]!r} among them")
        values.clear()
        self._set(self._open, given)

    @property
    @in_turn
    def optimizer_state(self) -> dict[str, Floats]:
        """Copies of the optimiser's buffers, by `parameter/buffer`, shaped like the parameter.

        Empty on ranks whose parameters rank 0 moves (strategy `tree`).
        """
        return self._engine.states()

    @property
    @in_turn
    def averaged_parameters(self) -> dict[str, Floats]:
        """Copies of `parameters`, with the moving averages of those that are learned, once there was an update.

        Of an optimiser with `ema`; ZnnpyError otherwise, and on ranks whose parameters rank 0 moves.
        """
        found, states = self._engine.parameters(), self._engine.states()
        if not any(name.endswith(f"/{AVERAGE}") for name in states):
            raise ZnnpyError(
                "averaged_parameters: the optimizer of this model keeps no average (ema)"
            )
        return averaged(found, states, self._settings.frozen) if self.iteration else found

    def to_state_dict(self) -> dict[str, Floats]:
        """Copies of `parameters` with the keys and axis orders of the network's class in PyTorch.

        Of a net that is nnU-Net's PlainConvUNet or ResidualEncoderUNet those of that class, which loads them once
        `torch.from_numpy` has made them tensors; of any other those of the module that `znnpy export` writes (torch).
        ExportError for kinds of edges and functions that PyTorch does not have.
        """
        # Named, not imported: rooms of other programs know the engine.
        found: dict[str, Floats] = resolved("znnpy.interop.export.state_dict:state_dict")(
            self.network, self.parameters
        )
        return found

    @in_turn
    def set_optimizer_state(self, values: Mapping[str, ArrayLike]) -> None:
        """Set the optimiser's buffers as `optimizer_state` gave them; all must be there.

        Where this fails half-way, as by Ctrl-C, the model computes nothing (ZnnpyError) until they are set.
        """
        opened = self._open
        given = self._given.states(values, opened.states())
        self._torn.add(STATES)
        opened.set_states(given)
        self._torn.discard(STATES)

    @in_turn
    def forward(self, x: Arrays) -> Floats | dict[str, Floats]:
        """Values of the output nodes for one batch of inputs; dropout is off.

        NaN and Inf in them are what arithmetic makes of them.
        """
        return alone(self._activated(self._values(x)))

    @in_turn
    def ready(self) -> None:
        """Make threads and task graph of updates, or of predictions without `training`, which the first one does else.

        Worth it on another thread, beside what comes before that: most of it needs no Python.
        """
        self._open.ready()

    @in_turn
    def staged(self) -> dict[str, Floats]:
        """The inputs that `run` takes, (batch, channel, z, y, x) by node: to be filled in place.

        The engine's own memory, for the thread that asks; other calls than `run` may change it. ZnnpyError for a model
        that computes its samples in several microbatches, which have no memory in one place.
        """
        self._refuse_microbatches("staged")
        rooms = self._engine.staged()
        self._staging.begin()
        return rooms

    @in_turn
    def run(self) -> dict[str, Floats]:
        """`forward` of what is staged: values by output node until the next call, not copied if linear.

        ZnnpyError where another thread has used the model since this one has called `staged`.
        """
        self._refuse_microbatches("run")
        self._staging.end()
        return self._activated(self._engine.run())

    @in_turn
    def predict(self, x: Arrays) -> Floats | dict[str, Floats]:
        """Probabilities: the logistic or softmax that the loss implies, applied once to every logit."""
        values, losses = self._values(x), self.losses
        return alone({name: probabilities(losses[name].reading, values[name]) for name in values})

    @in_turn
    def loss_and_gradients(
        self, x: Arrays, target: Arrays, weight: Arrays | None = None
    ) -> tuple[float, dict[str, Floats]]:
        """The loss and its gradient by every filter and bias, without an update.

        `target` and `weight` have the outputs' shapes; a weight may have one channel for all, and is at
        least 0. Targets that weigh 0 do not count, whatever they are; those that a NumPy mask hides weigh 0
        (softmax: their voxel). Others must be what the loss takes: else ZnnpyError. The loss is the weighted mean
        over voxels and output channels (softmax: over voxels, weighed by the first channel's weights), summed over
        outputs. With `ranks` both are of the samples of all ranks, which must all come here: those that an
        update would use.
        """
        result, gradients = self._engine.gradients(*self._batch(x, target, weight), self.iteration)
        return result.loss, gradients

    @in_turn
    def step(
        self,
        x: Arrays,
        target: Arrays,
        weight: Arrays | None = None,
        learning_rate: float = 0.01,
    ) -> float:
        """One update; returns the loss before it. The update itself may still be running.

        Arrays are read where they lie until the loss is known: if this is interrupted, they must stay as they are until
        `drain` returns.
        """
        ticket = self._submit(x, target, weight, learning_rate, borrow=True)
        return self._open.loss(ticket)

    @in_turn
    def submit(
        self,
        x: Arrays,
        target: Arrays,
        weight: Arrays | None = None,
        learning_rate: float = 0.01,
    ) -> int:
        """Start one update on copies of the arrays and return its ticket; at most two are in flight."""
        return self._submit(x, target, weight, learning_rate, borrow=False)

    @in_turn
    def result(self, ticket: int) -> StepResult:
        """Loss and error of one of the last 16,384 submitted updates, of any thread; ZnnpyError for others.

        Waits for that update's forward pass and loss only.
        """
        return self._open.result(whole_number_of("ticket", ticket))

    @in_turn
    def drain(self) -> None:
        """Wait until all submitted updates are complete."""
        self._open.drain()

    @in_turn
    def non_finite_layer(self) -> str | None:
        """The first node or parameter, in the order of the data, that holds NaN or Inf.

        By one more forward pass of the last call's inputs, which other calls than `submit` do not copy: as they are
        now. Of all ranks, which must ask together.
        """
        own, party = self._engine.first_non_finite(), self._settings.party
        # Ranks see different samples, and one of them may have met NaN first.
        found = [it for it in (party.world.exchange(own) if party else [own]) if it]
        nodes = [node.name for node in self._logits.nodes if node.name in found]
        return next(iter(nodes + found), None)

    @property
    @in_turn
    def task_graph(self) -> TaskGraph:
        """The task graph of an even and an odd update; of a forward pass without `training`."""
        return self._engine.task_graph()

    def task_graph_for(self, threads: int) -> TaskGraph:
        """The tasks, and the order that they keep, on so many threads; without memory, not to be run.

        The policy is this model's, and so is what it is cut for, if that was set. More threads take more memory, so
        that less waits for buffers.
        """
        # The bound of `Model(threads=...)`.
        workers = max(1, whole_number_of("threads", threads, 0, 4096))
        return declared_graph(self._planned_for(workers), self._settings)

    def touched(self) -> Touched:
        """Return what the tasks of `task_graph` that work read and write, stripe by stripe of memory."""
        memory = self._planned_for(max(1, self._layout.workers))
        return declared_touches(memory, self._settings)

    def _planned_for(self, workers: int) -> MemoryPlan:
        """Return the memory plan for so many workers, with its tasks."""
        layout = replace(self._layout, workers=workers)
        return planned_with_replicas(layout, self._settings, keep=True)

    def added_up(self) -> Sequence[Sequence[Pieces]]:
        """Return what ranks would add up in an update, layer by layer, in the order in which it is made."""
        return declared_layers(self._layout)

    @in_turn
    def recording(self) -> list[WorkerRecording]:
        """Return what each worker did in `task_graph` since the start; events if the model records them."""
        return self._engine.recording()

    @in_turn
    def close(self) -> None:
        """Stop the worker threads and free the memory; the model cannot be used afterwards.

        Waits for calls of other threads; those that come later are refused.
        """
        # First, so that calls are refused even if stopping the workers is interrupted.
        self._opened = None
        self._close()

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> Never:
        """Raise ZnnpyError for copies and pickles: neither would have memory and threads of its own."""
        raise ZnnpyError(
            "a Model is neither copied nor pickled, as it has memory and threads: make another one of the same "
            "arguments and give it these `parameters`, and `optimizer_state` and `iteration` to go on with"
        )

    def _submit(
        self,
        x: Arrays,
        target: Arrays,
        weight: Arrays | None,
        learning_rate: float,
        *,
        borrow: bool,
    ) -> int:
        rate, engine, ticket = learning_rate_of(learning_rate), self._open, None
        try:
            if weight is None and (quick := engine.quick) and quick.ready:
                self._staging.use()
                number = self._before + self._started
                ticket = quick.start(x, target, rate, number, borrow=borrow)
            if ticket is None:
                batch = self._batch(x, target, weight)
                ticket = self._engine.submit(*batch, rate, self.iteration, borrow=borrow)
            # After the engine has taken it: a refused update must not change what dropout draws next.
            self._started = ticket + 1
        except BaseException:
            # Ctrl-C may come when it has.
            self._started = engine.submitted
            raise
        return ticket

    def _refuse_microbatches(self, call: str) -> None:
        if len(self._layout.numbers) > 1:
            raise ZnnpyError(
                f"{call}: this model computes its {self._layout.samples} samples in microbatches of "
                f"{self.microbatch}; `forward` takes all of them"
            )

    def _activated(self, values: dict[str, Floats]) -> dict[str, Floats]:
        """The nodes' values from the engine's, which come before the functions that the loss applies."""
        return {
            name: array
            if self._logits.node(name).function == self.network.node(name).function
            else probabilities(self.losses[name].reading, array)
            for name, array in values.items()
        }

    def _set(self, engine: SingleEngine | DoubleEngine, given: dict[str, Any]) -> None:
        # Until the last line: a disk, a file that has changed and Ctrl-C may end this anywhere.
        self._torn.add(PARAMETERS)
        if self._unfolded is not None:
            self._unfolded |= {name: np.array(array) for name, array in given.items()}
            # Always of all parameters: one that changes may be folded into filters that do not.
            given = fold(self.network, self._unfolded)
        # Derived filters are made again there.
        engine.set_parameters(given)
        self._torn.discard(PARAMETERS)
        self._drawn = True

    @property
    def _open(self) -> SingleEngine | DoubleEngine:
        if self._opened is None:
            raise ZnnpyError("this model is closed")
        return self._opened

    @property
    def _engine(self) -> SingleEngine | DoubleEngine:
        """The engine, with parameters."""
        opened = self._open
        if self._torn:
            raise ZnnpyError(
                f"{min(self._torn)} of this model were set in part only, as setting them failed; set all of them again"
            )
        if not self._drawn:
            try:
                # On every rank from the same seed: nothing has to be sent.
                self._set(opened, initial_parameters(self.network, self.seed, max(1, self.threads)))
            finally:
                self._torn.discard(PARAMETERS)  # they can be drawn again
        return opened

    def _values(self, x: Arrays) -> dict[str, Floats]:
        _ = self._engine  # a closed one says so first
        self._staging.use()
        return self._engine.forward(self._given.inputs(x), self.iteration)

    def _batch(
        self, x: Arrays, target: Arrays, weight: Arrays | None
    ) -> tuple[ByName, ByName, ByName]:
        if not self._layout.training:
            raise ShapeError("this model was made with training=False: it has no gradients")
        _ = self._engine  # a closed one says so first
        self._staging.use()
        return self._given.batch(x, target, weight)
