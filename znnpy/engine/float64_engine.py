"""The float64 engine: plain NumPy, one step after the other, to check gradients and precision.

It has the calls and the dropout masks of the float32 engine; nothing but the masks is compiled or runs in parallel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray
from znnpy_kernels.layers.dropout import dropout
from znnpy_kernels.simd.lanes import LANES

from znnpy import reference
from znnpy.engine.memory.arrays import ByName, joined
from znnpy.engine.memory.layout import Layout
from znnpy.engine.step_result import StepResult, refuse_ticket
from znnpy.engine.step_tasks import Settings
from znnpy.engine.tasks.step import added, added_pairs
from znnpy.errors import PlanError
from znnpy.learning.loss import Objective
from znnpy.learning.optimizers import AVERAGE, adapted, average_share
from znnpy.network import learned, parameter_shapes
from znnpy.network.objectives import total_factor
from znnpy.network.types import Edge

Doubles = NDArray[np.float64]


class _Microbatch(NamedTuple):
    """The arrays of one microbatch, by node or edge."""

    inputs: dict[str, Doubles]
    targets: dict[str, Doubles]
    weights: dict[str, Doubles]
    masks: dict[str, Doubles]


class DoubleEngine:
    """Evaluates one layout by `znnpy.reference`. Arrays come checked, by node name; one caller at a time."""

    dtype = np.float64
    quick: None = None  # as the float32 engine may have
    connected_before = False  # there are no tasks

    def __init__(self, layout: Layout, settings: Settings) -> None:
        self.layout, self.settings = layout, settings
        shapes, moving = parameter_shapes(layout.network), learned(layout.network)
        self._parameters = {name: np.zeros(shape) for name, shape in shapes.items()}
        self._states = {
            f"{name}/{state}": np.zeros(shapes[name])
            for name in moving
            for state in settings.optimizer.state_names
        }
        self._results: list[StepResult] = []
        self._values: dict[str, Doubles] = {}
        self._staged = {
            node.name: np.zeros((layout.samples, node.channels, *layout.shape(node.name)))
            for node in layout.network.inputs
        }
        values = (node.channels * np.prod(layout.shape(node.name)) for node in layout.network.nodes)
        # What NumPy takes besides is not planned; this is for reports.
        self.bytes = int(16 * layout.samples * sum(values))  # 8 each, and as much for gradients

    def parameters(self) -> dict[str, Doubles]:
        """Return copies of all parameters, by name."""
        return {name: array.copy() for name, array in self._parameters.items()}

    def set_parameters(self, values: Mapping[str, ArrayLike]) -> None:
        """Set parameters by name."""
        for name, array in values.items():
            self._parameters[name] = np.array(array, np.float64)

    def states(self) -> dict[str, Doubles]:
        """Return copies of the optimiser's buffers by `parameter/buffer`."""
        return {name: array.copy() for name, array in self._states.items()}

    def set_states(self, values: ByName) -> None:
        """Set the optimiser's buffers."""
        for name, array in values.items():
            self._states[name] = np.array(array, np.float64)

    def forward(self, inputs: ByName, iteration: int) -> dict[str, Doubles]:
        """Return the output nodes' values, without dropout."""
        layout = self.layout
        found = [
            reference.forward(layout.network, layout.geometry, self._parameters, own)
            for own in self._microbatches(inputs)
        ]
        self._values = joined(found)
        return {node.name: self._values[node.name] for node in layout.network.outputs}

    def staged(self) -> dict[str, Doubles]:
        """Return the arrays from which `run` reads the inputs."""
        return dict(self._staged)

    def run(self) -> dict[str, Doubles]:
        """Return the output nodes' values for the staged inputs."""
        return self.forward(self._staged, 0)

    def gradients(
        self, inputs: ByName, targets: ByName, weights: ByName, iteration: int
    ) -> tuple[StepResult, dict[str, Doubles]]:
        """Return loss and gradients without an update."""
        masks = self._masks(iteration)
        given = [self._microbatches(arrays) for arrays in (inputs, targets, weights, masks)]
        parts = [_Microbatch(*own) for own in zip(*given, strict=True)]
        values = [self._trained_values(part) for part in parts]
        self._values = joined(values)
        # All weights first: each microbatch's gradient is divided by the weight of the whole batch.
        whole = self._whole_weights(parts, values)
        found = [self._gradients_of(part, whole) for part in parts]
        # By the tree of the float32 engine, so that differences between both come from precision
        # alone.
        gradients = {name: added([own[name] for _, own in found]) for name in found[0][1]}
        loss = added([total for total, _ in found])
        each = self._losses(parts, values, whole)
        return StepResult(loss, self._error(parts, values), each), gradients

    def _microbatches(self, arrays: ByName) -> list[dict[str, Doubles]]:
        """Return views of the samples of each microbatch."""
        size, samples = self.layout.batch, self.layout.samples
        return [
            {name: array[first : first + size] for name, array in arrays.items()}
            for first in range(0, samples, size)
        ]

    def _trained_values(self, part: _Microbatch) -> dict[str, Doubles]:
        layout = self.layout
        return reference.forward(
            layout.network, layout.geometry, self._parameters, part.inputs, part.masks, True
        )

    def _whole_weights(
        self, parts: Sequence[_Microbatch], values: Sequence[ByName]
    ) -> dict[str, list[float]]:
        """Return the weights of the parts of each output's loss, summed over all microbatches."""
        found: dict[str, list[float]] = {}
        for name in parts[0].targets:
            own = [
                self.settings.losses[name].part_weights(
                    of[name], part.targets[name], part.weights.get(name)
                )
                for part, of in zip(parts, values, strict=True)
            ]
            found[name] = [added(each) for each in zip(*own, strict=True)]
        return found

    def _losses(
        self,
        parts: Sequence[_Microbatch],
        values: Sequence[ByName],
        whole: Mapping[str, Sequence[float]],
    ) -> dict[str, float]:
        """Return the loss of each output, times its factor."""
        return {
            name: added(
                [
                    objective.value(of[name], part.targets[name], part.weights.get(name), own)
                    for part, of in zip(parts, values, strict=True)
                ]
            )
            for name, own in whole.items()
            for objective in [self.settings.losses[name]]
        }

    def _gradients_of(
        self, part: _Microbatch, whole: Mapping[str, Sequence[float]]
    ) -> tuple[float, dict[str, Doubles]]:
        layout, (inputs, targets, weights, masks) = self.layout, part
        return reference.gradients(
            layout.network, layout.geometry, self._parameters, inputs, targets, weights,
            self.settings.losses, masks, whole,
        )  # fmt: skip

    def _error(self, parts: Sequence[_Microbatch], values: Sequence[ByName]) -> float:
        """Return the weighted share of wrong voxels, a mean over outputs weighted by their factors."""
        error = 0.0
        for name in parts[0].targets:
            objective = self.settings.losses[name]
            pairs = [
                _wrong(objective, of[name], part.targets[name], part.weights.get(name))
                for part, of in zip(parts, values, strict=True)
            ]
            wrong, total = added_pairs(pairs)
            error += objective.factor * wrong / total if total else 0.0
        return error / total_factor(self.settings.losses)

    def submit(
        self,
        inputs: ByName,
        targets: ByName,
        weights: ByName,
        learning_rate: float,
        iteration: int,
        *,
        borrow: bool = False,
    ) -> int:
        """Make one update and return its ticket."""
        result, gradients = self.gradients(inputs, targets, weights, iteration)
        # Before parameters change: statistics are those of the forward pass that the gradients come
        # from.
        moved = self._moved(iteration)
        scale = self._clip_scale(gradients)
        for name, gradient in gradients.items():
            self._update(name, gradient * scale, learning_rate, iteration + 1)
        self._parameters |= moved
        self._results.append(result)
        return len(self._results) - 1

    @property
    def submitted(self) -> int:
        """How many updates were made."""
        return len(self._results)

    def _moved(self, iteration: int) -> dict[str, Doubles]:
        """Return running statistics after an update: the mean of those that each microbatch leads to."""
        layout, masks = self.layout, self._microbatches(self._masks(iteration))
        found = [
            reference.moved_statistics(
                layout.network, layout.geometry, self._parameters, values, own
            )
            for values, own in zip(self._microbatches(self._values), masks, strict=True)
        ]
        return {name: added([own[name] for own in found]) / len(found) for name in found[0]}

    def result(self, ticket: int) -> StepResult:
        """Return loss and error of a submitted update."""
        refuse_ticket(ticket, len(self._results))
        return self._results[ticket]

    def loss(self, ticket: int) -> float:
        """Return the loss of `result` alone."""
        return self.result(ticket).loss

    def drain(self) -> None:
        """Do nothing: updates are complete when `submit` returns."""

    def first_non_finite(self) -> str | None:
        """Return the first node in topological order, or else parameter, that holds NaN or Inf; None if none does."""
        names = [node.name for node in self.layout.network.nodes]
        arrays = [(name, self._values[name]) for name in names if name in self._values]
        for name, array in [*arrays, *self._parameters.items()]:
            if not np.isfinite(array).all():
                return name
        return None

    def close(self) -> None:
        """Do nothing: there are no threads to stop."""

    def ready(self) -> None:
        """Do nothing: there are neither threads nor tasks."""

    def task_graph(self) -> NoReturn:
        """Raise PlanError: float64 has no task graph."""
        raise PlanError("precision float64 runs without a task graph; profile with float32")

    recording = task_graph

    def _masks(self, iteration: int) -> dict[str, Doubles]:
        network = self.layout.network
        return {
            edge.name: self._mask(edge, iteration)
            for edge in network.edges
            if edge.kind == "dropout"
        }

    def _mask(self, edge: Edge, iteration: int) -> Doubles:
        """Return 1 where the float32 engine keeps a voxel, by running its kernel on ones."""
        channels, shape = (
            self.layout.network.node(edge.source).channels,
            self.layout.shape(edge.source),
        )
        ones = np.ones((*shape, LANES), np.float32)
        samples, first_sample = self.layout.samples, self.layout.numbers.start * self.layout.batch
        seed, number = np.array([self.layout.seed]), np.array([iteration])
        kept = np.empty((samples, channels, *shape))
        for batch in range(samples):
            for first in range(0, channels, LANES):
                target = np.empty_like(ones)
                row, plane = shape[2] * LANES, shape[1] * shape[2] * LANES
                dropout.call(
                    source=ones.ctypes.data, source_z=plane, source_y=row,
                    target=target.ctypes.data, target_z=plane, target_y=row,
                    seed=seed.ctypes.data, edge=crc32(edge.name.encode()),
                    iteration=number.ctypes.data, image=first_sample + batch, first_channel=first,
                    first_plane=0, first_row=0, planes=shape[0], rows=shape[1], width=shape[2],
                    keep=edge.keep,
                )  # fmt: skip
                few = min(LANES, channels - first)
                kept[batch, first : first + few] = np.moveaxis(target, -1, 0)[:few] != 0
        return kept

    def _clip_scale(self, gradients: ByName) -> float:
        if self.settings.clip_norm is None:
            return 1.0
        moving = [g for name, g in gradients.items() if name not in self.settings.frozen]
        norm = float(np.sqrt(sum((g**2).sum() for g in moving)))
        # 1e-6 as in PyTorch's `clip_grad_norm_` and in the float32 kernel (`clip_scale`): no
        # division by 0.
        return min(1.0, self.settings.clip_norm / (norm + 1e-6))

    def _update(self, name: str, gradient: Doubles, learning_rate: float, update: int) -> None:
        """Update one parameter by its optimiser's float64 formula (`learning/optimizers.py`)."""
        optimizer, value = self.settings.optimizer, self._parameters[name]
        if name in self.settings.frozen:
            return
        # Filters have five axes; biases and norms are never decayed.
        decay = optimizer.weight_decay if value.ndim == 5 else 0.0
        adapts, scaled = optimizer.entry.adapts, optimizer.entry.scaled
        if optimizer.decoupled:
            # AdamW: weights shrink by themselves, and the moments never see the decay.
            value *= 1 - learning_rate * decay
        elif scaled and value.ndim == 5:
            gradient = scaled(optimizer.keys, value, gradient, decay)
        elif not adapts:
            gradient = gradient + decay * value
        states = {state: self._states[f"{name}/{state}"] for state in optimizer.own_states}
        step = optimizer.entry.step(optimizer.keys, gradient, states, update)
        if adapts and value.ndim == 5:
            step = adapted(value, step + decay * value)
        value -= learning_rate * step
        if optimizer.ema is not None:
            average = self._states[f"{name}/{AVERAGE}"]
            average += average_share(optimizer.ema, update) * (value - average)


def _wrong(
    objective: Objective, values: Doubles, target: Doubles, weight: Doubles | None
) -> tuple[float, float]:
    """Return the weight of wrong voxels, and of all."""
    return objective.error(values, target, objective.counting(weight, values.shape))
