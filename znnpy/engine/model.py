"""The public model: a network of one size that can be run, differentiated and trained."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from znnpy.config.distributed_section import DistributedSection
from znnpy.distributed.bundles import Pieces
from znnpy.distributed.strategies import Strategy
from znnpy.distributed.world import World
from znnpy.engine.autotune import planned
from znnpy.engine.communication.exchange import Party
from znnpy.engine.emit import refuse_without_tasks
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.layers.probabilities import probabilities
from znnpy.engine.making import (
    Precision,
    checked_loss,
    laid_out,
    opened,
    refuse_ranks,
    refuse_untrainable_sizes,
    weighed_objectives,
)
from znnpy.engine.memory.arrays import (
    Arrays,
    Floats,
    alone,
    by_node,
    refuse_mask,
    refuse_weights,
    unmasked,
)
from znnpy.engine.memory.limits import refuse_hopeless
from znnpy.engine.planning import declared_graph, declared_layers, planned_with_replicas
from znnpy.engine.report import Report
from znnpy.engine.result import StepResult
from znnpy.engine.single import SingleEngine
from znnpy.engine.steps import Settings
from znnpy.errors import ShapeError, ZnnpyError
from znnpy.geometry import Extent, Geometry, describe, fit
from znnpy.graph import TaskGraph
from znnpy.learning.loss import LossKeys
from znnpy.network import (
    Network,
    initial_parameters,
    load_network,
    logits_network,
    parameter_shapes,
)
from znnpy.network.folding import fold, folded
from znnpy.network.outputs import refuse_untrainable
from znnpy.network.parameters import repeated, repeats_of
from znnpy.network.types import Triple
from znnpy.plan import Choice, Plan
from znnpy.scheduler.cores import available_cores
from znnpy.scheduler.recording import WorkerRecording

if TYPE_CHECKING:
    from znnpy.engine.double import DoubleEngine

DISTRIBUTED = DistributedSection()


class Model:
    """A network for one output shape and batch size, with its parameters, plan and worker threads.

    `network`: a Network, or anything `load_network` takes. `output_shape`: voxels of one output patch
    (z, y, x), one number for all three, or a dict by output node. `threads`: workers (default: all
    cores this process may use; 0: the serial executor). `conv`: auto, direct, fft, spectral. `loss`:
    its name or a dict of its kind and keys, as in a config; the cross-entropies take the values of a linear
    output as logits, those of a logistic or softmax one as probabilities.
    `factors`: of the losses of several outputs, by node (default 1 each).
    `microbatch`: how many samples are computed at once, by one fixed plan; an update adds up
    `batch / microbatch` of them (default: the batch). `max_memory`: bytes; PlanError when the plan needs
    more, or more than the machine has. `plan`: a `plan_record` to repeat. `training=False` reserves no
    gradients.
    `precision`: float32, or float64 by plain NumPy, slow and for checks. `ranks`: the processes that train
    this network together, which all make the same model; each takes the samples that `samples` counts, rank 0
    plans for all, and parameters are the same everywhere after every update. `distributed`: how.

    The results are bitwise the same for any number of threads. Arrays are (batch, image, z, y, x)
    float32; copied in and out. One caller at a time. Settings are those that a config may hold;
    ConfigError, a ZnnpyError, says which is not.
    """

    def __init__(
        self,
        network: Any,
        output_shape: Extent | Mapping[str, Extent] = 12,
        batch: int = 1,
        threads: int | None = None,
        seed: int = 0,
        conv: Choice = "auto",
        loss: str | Mapping[str, Any] | LossKeys = "binomial_cross_entropy",
        optimizer: Optimizer | None = None,
        factors: Mapping[str, float] | None = None,
        clip_norm: float | None = None,
        max_memory: int | None = None,
        plan: Mapping[str, Mapping[str, Any]] | None = None,
        training: bool = True,
        microbatch: int | None = None,
        precision: Precision = "float32",
        policy: str = "critical-path",
        steal_seed: int = 0,
        record: int = 0,
        report: Report | None = None,
        ranks: World | None = None,
        distributed: DistributedSection = DISTRIBUTED,
    ) -> None:
        learning: dict[str, Any] = {
            "batch": batch,
            "microbatch": microbatch,
            "seed": seed,
            "loss": loss,
        }
        learning |= {"conv": conv, "clip_norm": clip_norm, "precision": precision}
        running: dict[str, Any] = {"threads": threads or None, "max_memory": max_memory}
        running |= {"policy": policy, "steal_seed": steal_seed}
        keys = checked_loss(learning, factors or {}, running)
        self.network: Network = load_network(network)
        if training:
            refuse_untrainable(self.network, keys)
        logits = logits_network(self.network, keys)
        self._logits = logits if training else folded(logits)
        self.losses = weighed_objectives(self._logits, keys, self.network, factors or {})
        if precision == "float32":
            refuse_without_tasks(self.network)
        self.geometry: Geometry = fit(self.network, output_shape)
        self.batch, self.seed, self.loss = batch, seed, keys
        self.microbatch = microbatch or batch
        self.threads = available_cores() if threads is None else threads
        party = None
        if training:
            refuse_untrainable_sizes(self.network, self.geometry, self.losses, self.microbatch)
            party = Party.of(ranks, batch // self.microbatch, self._logits, distributed)
        elif microbatch is not None:
            raise ZnnpyError("microbatch: a model without training computes its batch at once")
        own = len(party.numbers) * self.microbatch if party else batch
        refuse_hopeless(
            self.network, self.geometry, self.microbatch, training, max_memory, staged=own
        )
        if party:
            refuse_ranks(precision, self.threads)

        def plan_as(record: Mapping[str, Mapping[str, Any]] | None) -> Plan:
            return planned(
                self._logits,
                self.geometry,
                self.microbatch,
                conv,
                record,
                training,
                report,
                max_memory=max_memory,
            )

        self.plan: Plan = party.planned(plan, plan_as) if party else plan_as(plan)
        self._settings = Settings(
            self.losses,
            optimizer or Optimizer(),
            clip_norm,
            self.threads,
            policy,
            steal_seed,
            record,
            max_memory,
            party,
        )
        sizes, workers = (self._logits, self.geometry, self.plan), max(1, self.threads)
        layout = laid_out(sizes, batch, self.microbatch, seed, workers, party, training=training)
        self._layout, engine = opened(layout, self._settings, precision, report)
        self._opened: SingleEngine | DoubleEngine | None = engine
        self._close = weakref.finalize(self, engine.close)  # a dropped model leaves no threads
        self._shapes, self._repeats = parameter_shapes(self.network), repeats_of(self.network)
        self._unfolded: dict[str, Floats] | None = None if self._logits is logits else {}
        self.iteration = 0
        self.set_parameters(initial_parameters(self.network, seed))

    @property
    def input_shape(self) -> Triple | dict[str, Triple]:
        """Voxels of the input patch (z, y, x); a dict by node when there are several inputs."""
        return _alone(self.geometry.input_shapes)

    @property
    def output_shape(self) -> Triple | dict[str, Triple]:
        """Voxels of the output patch (z, y, x); a dict by node when there are several outputs."""
        return _alone(self.geometry.output_shapes)

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
        layout = self._layout
        first = layout.numbers.start * layout.batch
        return range(first, first + layout.samples)

    @property
    def field_of_view(self) -> Triple | dict[str, Triple]:
        """Input voxels that one output voxel sees (z, y, x)."""
        return _alone(self.geometry.fields_of_view)

    @property
    def in_flight(self) -> int:
        """How many microbatches may be under way at once: with memory of its own for each."""
        return self._layout.replicas

    @property
    def memory(self) -> int:
        """Planned peak in bytes: everything that tasks touch."""
        return self._engine.bytes

    @property
    def plan_record(self) -> dict[str, Any]:
        """Algorithm per layer and pass, JSON-able; give it back as `plan=` for the same bits."""
        return self.plan.to_record()

    @property
    def parameters(self) -> dict[str, Floats]:
        """Copies of all that a network keeps.

        Filters (out, in, z, y, x) by edge, biases (out,) by node, `node.scale`, `node.running_mean` ... (out,).
        """
        if self._unfolded is not None:
            return {name: array.copy() for name, array in self._unfolded.items()}
        return self._engine.parameters()

    def set_parameters(self, values: Mapping[str, ArrayLike]) -> None:
        """Set some or all `parameters`; ShapeError for unknown names and wrong shapes.

        Filters that repeat get the mean over each block of equal taps.
        """
        unknown = sorted(set(values) - set(self._shapes))
        if unknown:
            raise ShapeError(
                f"no parameter {unknown[0]!r}; this network has {sorted(self._shapes)}"
            )
        given = {name: self._shaped(name, array) for name, array in values.items()}
        if self._unfolded is not None:
            self._unfolded |= {name: array.copy() for name, array in given.items()}
            given = fold(self.network, self._unfolded)
        self._engine.set_parameters(given)

    @property
    def optimizer_state(self) -> dict[str, Floats]:
        """Copies of the optimiser's buffers, by `parameter/buffer`, shaped like the parameter.

        Empty on ranks whose parameters rank 0 moves (strategy `tree`).
        """
        return self._engine.states()

    def set_optimizer_state(self, values: Mapping[str, ArrayLike]) -> None:
        """Set the optimiser's buffers as `optimizer_state` gave them; all must be there."""
        expected = set(self._engine.states())
        if set(values) != expected:
            raise ShapeError(
                f"optimizer state: found {sorted(values)}, this model needs {sorted(expected)}"
            )
        self._engine.set_states(
            {key: self._shaped(key.rpartition("/")[0], array) for key, array in values.items()}
        )

    def forward(self, x: Arrays) -> Floats | dict[str, Floats]:
        """Values of the output nodes for one batch of inputs; dropout is off."""
        return alone(self._activated(self._engine.forward(self._inputs(x), self.iteration)))

    def staged(self) -> dict[str, Floats]:
        """The inputs that `run` takes, (batch, image, z, y, x) by node: to be filled in place.

        The engine's own memory; other calls than `run` may change it. ZnnpyError for a model that computes its
        samples in several microbatches, which have no memory in one place.
        """
        self._refuse_microbatches("staged")
        return self._engine.staged()

    def run(self) -> dict[str, Floats]:
        """`forward` of what is staged: values by output node until the next call, not copied if linear."""
        self._refuse_microbatches("run")
        return self._activated(self._engine.run())

    def predict(self, x: Arrays) -> Floats | dict[str, Floats]:
        """Probabilities: the logistic or softmax that the loss implies, applied once to every logit."""
        values = self._engine.forward(self._inputs(x), self.iteration)
        return alone(
            {
                name: probabilities(self.losses[name].reading, array)
                for name, array in values.items()
            }
        )

    def loss_and_gradients(
        self, x: Arrays, target: Arrays, weight: Arrays | None = None
    ) -> tuple[float, dict[str, Floats]]:
        """The loss and its gradient by every filter and bias, without an update.

        `target` and `weight` have the outputs' shapes; a weight may have one image for all, and is at
        least 0. Targets that weigh 0 do not count, whatever they are; those that a NumPy mask hides
        weigh 0 (softmax: their voxel). The loss is the weighted mean over voxels and output images
        (softmax: over voxels, weighed by the first image's weights), summed over outputs. With `ranks` both
        are of the samples of all ranks, which must all come here: those that an update would use.
        """
        batch = self._batch(x, target, weight)
        result, gradients = self._engine.gradients(*batch, self.iteration)
        return result.loss, gradients

    def step(
        self,
        x: Arrays,
        target: Arrays,
        weight: Arrays | None = None,
        learning_rate: float = 0.01,
    ) -> float:
        """One update; returns the loss before it. The update itself may still be running."""
        return self.result(self._submit(x, target, weight, learning_rate, borrow=True)).loss

    def submit(
        self,
        x: Arrays,
        target: Arrays,
        weight: Arrays | None = None,
        learning_rate: float = 0.01,
    ) -> int:
        """Start one update on copies of the arrays and return its ticket; at most two are in flight."""
        return self._submit(x, target, weight, learning_rate, borrow=False)

    def result(self, ticket: int) -> StepResult:
        """Loss and error of one of the last two submitted updates.

        Waits for that update's forward pass and loss only.
        """
        return self._engine.result(ticket)

    def drain(self) -> None:
        """Wait until all submitted updates are complete."""
        self._engine.drain()

    def non_finite_layer(self) -> str | None:
        """The first node or parameter, in the order of the data, that holds NaN or Inf.

        Of all ranks, which must ask together.
        """
        own, party = self._engine.first_non_finite(), self._settings.party
        found = [it for it in (party.world.exchange(own) if party else [own]) if it]
        nodes = [node.name for node in self._logits.nodes if node.name in found]
        return next(iter(nodes + found), None)

    @property
    def task_graph(self) -> TaskGraph:
        """The task graph of an even and an odd update; of a forward pass without `training`."""
        return self._engine.task_graph()

    def task_graph_for(self, threads: int) -> TaskGraph:
        """The tasks with the order that they keep on so many threads; without memory, not to be run.

        The policy is this model's. More threads take more memory, so that less waits for buffers.
        """
        layout = replace(self._layout, workers=max(1, threads))
        memory = planned_with_replicas(layout, self._settings)
        return declared_graph(memory, self._settings)

    def added_up(self) -> Sequence[Sequence[Pieces]]:
        """What ranks would add up in an update, layer by layer, in the order in which it is made."""
        return declared_layers(self._layout)

    def recording(self) -> list[WorkerRecording]:
        """What each worker did in `task_graph` since the start; events if the model records them."""
        return self._engine.recording()

    def close(self) -> None:
        """Stop the worker threads and free the memory; the model cannot be used afterwards."""
        self._opened = None
        self._close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _submit(
        self,
        x: Arrays,
        target: Arrays,
        weight: Arrays | None,
        learning_rate: float,
        *,
        borrow: bool,
    ) -> int:
        if not 0 <= learning_rate < inf:
            raise ZnnpyError(f"learning_rate {learning_rate} must be a finite number of at least 0")
        batch = self._batch(x, target, weight)
        ticket = self._engine.submit(*batch, learning_rate, self.iteration, borrow=borrow)
        self.iteration += 1
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

    @property
    def _engine(self) -> SingleEngine | DoubleEngine:
        if self._opened is None:
            raise ZnnpyError("this model is closed")
        return self._opened

    def _batch(
        self, x: Arrays, target: Arrays, weight: Arrays | None
    ) -> tuple[dict[str, Floats], dict[str, Floats], dict[str, Floats]]:
        if not self._layout.training:
            raise ShapeError("this model was made with training=False: it has no gradients")
        shapes, outputs = self.geometry.output_shapes, self.network.outputs
        samples = self._layout.samples
        kind = self._engine.dtype
        targets = by_node(target, outputs, samples, shapes, "target", kind)
        weights: dict[str, Floats] = {}
        if weight is not None:
            weights = by_node(weight, outputs, samples, shapes, "weight", kind, one_image=True)
            refuse_weights(weights)
        whole = {name for name, loss in self.losses.items() if loss.reading.whole_voxels}
        return self._inputs(x), *unmasked(targets, weights, whole_voxels=whole)

    def _inputs(self, x: Arrays) -> dict[str, Floats]:
        shapes, samples = self.geometry.input_shapes, self._layout.samples
        inputs = by_node(x, self.network.inputs, samples, shapes, "input", self._engine.dtype)
        for name, array in inputs.items():
            refuse_mask(array, f"input of node {name!r}")
        return inputs

    def _shaped(self, name: str, array: ArrayLike) -> Floats:
        refuse_mask(array, f"parameter {name!r}")
        found: Floats = np.asarray(array, self._engine.dtype)
        if found.shape != self._shapes[name]:
            raise ShapeError(
                f"parameter {name!r}: shape {describe(found.shape)}, but this network has "
                f"{describe(self._shapes[name])}"
            )
        return repeated(found, self._repeats.get(name))


def _alone(shapes: Mapping[str, Triple]) -> Triple | dict[str, Triple]:
    return dict(shapes) if len(shapes) > 1 else next(iter(shapes.values()))
