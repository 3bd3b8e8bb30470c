"""Tasks of the update: gradient norm and clipping, the optimiser's step on each parameter, running statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from znnpy_kernels.layers.gradient_norms import clip_scale, sum_of_squares
from znnpy_kernels.layers.moving_averages import moving_average
from znnpy_kernels.machine.abi import Kernel

from znnpy.engine.layers.normalization import move_running
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.parameters import Parameter
from znnpy.engine.memory.regions import SMALL, Buffer, Name, Region, Use
from znnpy.engine.memory.staging import SHARE_AT
from znnpy.engine.tasks.buffer_sharing import join
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.learning.optimizers import AVERAGE
from znnpy.plan import ranges
from znnpy.plan.cost import MEMORY_RATE

NORM_PARTIALS = Use("partial norms", SMALL)
SCALE = Use("clip scale", SMALL)
LAYER_NORMS = Use("norms of a layer", SMALL)
NOTHING: Mapping[str, float] = {}


def emit_updates(
    step: Step,
    build: Build,
    optimizer: Optimizer,
    clip_norm: float | None,
    frozen: frozenset[str] = frozenset(),
) -> None:
    """Declare the update of every parameter that is not frozen or updated yet, and of running statistics.

    With `clip_norm` all wait for the norm over their gradients.
    """
    done = frozen | step.updated
    moving = [parameter for parameter in build.moving if parameter.name not in done]
    # Clipping is the one thing that makes every update wait for the whole backward pass.
    scale = None if clip_norm is None else _emit_clip(step, build, moving)
    for parameter in moving:
        # Many tasks of many microbatches read them: one gate in place of an edge from each to each update.
        if len(build.layout.numbers) > 1:
            join(step, parameter.stored)
        _emit_update(step, build, parameter, optimizer, scale)
    for node in build.layout.network.nodes:
        if node.norm is not None and node.norm.running:
            move_running(step, build, node, node.norm)


@dataclass(frozen=True)
class UpdateAtOnce:
    """Updates behind tasks that make gradients, which caches then hold; the same bits as by `emit_updates`."""

    optimizer: Optimizer
    frozen: frozenset[str]

    def takes(self, parameter: Parameter) -> bool:
        """Return whether a part of a parameter can be updated by its own gradient alone, and passes read what it is."""
        alone = self.optimizer.norms is None and not parameter.standardized
        return alone and parameter.learned and parameter.name not in self.frozen

    def update(
        self, step: Step, build: Build, parameter: Parameter, pieces: range, gradient: Buffer
    ) -> None:
        """Declare the update of some pieces by a gradient in a buffer of its own."""
        low, high = pieces.start, pieces.stop
        part = _Range(build, parameter, self.optimizer, None, low, high, gradient)
        _emit_part(step, build, part, self.optimizer.kernel, follows=True)
        step.updated.add(parameter.name)


def _emit_update(
    step: Step, build: Build, parameter: Parameter, optimizer: Optimizer, scale: Buffer | None
) -> None:
    # About five floats read or written for each weight: value twice, gradient, one or two states.
    cuts = ranges(len(parameter.pieces), parameter.floats * 20 / MEMORY_RATE)
    parts = [_Range(build, parameter, optimizer, scale, low, high) for low, high in cuts]
    norms, of_layer = optimizer.norms, {}
    regions = []
    if norms:
        # Two float64 for each range; read when all of them are there, as each moves states too.
        partials = build.scratch(Name(LAYER_NORMS, parameter.name), 4 * len(cuts))
        for number, part in enumerate(parts):
            step.add(
                norms,
                part.words(norms) | {"partial": partials.address + 16 * number},
                what=Identity(parameter.name, Pass.UPDATE, Part.NORM),
                cost=part.length * 20 / MEMORY_RATE,
                reads=part.reads,
                writes=[partials.region(number, number + 1)],
            )
        counted = len(cuts) if parameter.is_filters else 0
        of_layer = {"partials": partials.address, "count": counted}
        regions = [partials.region(0, len(cuts))]
    for part in parts:
        _emit_part(step, build, part, optimizer.kernel, of_layer, regions)


def _emit_part(
    step: Step,
    build: Build,
    part: _Range,
    kernel: Kernel,
    of_layer: Mapping[str, float] = NOTHING,
    regions: Sequence[Region] = (),
    *,
    follows: bool = False,
) -> None:
    """Declare an update and what goes on with it; `of_layer`: words of the kernel by what lies in other `regions`."""
    step.add(
        kernel,
        {**part.words(kernel), **of_layer},
        what=Identity(part.parameter.name, Pass.UPDATE, Part.UPDATE),
        cost=part.length * 20 / MEMORY_RATE,
        reads=[*part.reads, *regions],
        writes=[part.stored],
        follows=follows,
    )
    if part.average is not None:
        _emit_average(step, build, part, follows=follows)


class _Range:
    """Pieces low..high of a parameter, as the kernels of an update take them; `made`: where their gradient is."""

    def __init__(
        self,
        build: Build,
        parameter: Parameter,
        optimizer: Optimizer,
        scale: Buffer | None,
        low: int,
        high: int,
        made: Buffer | None = None,
    ) -> None:
        begin, last = parameter.pieces[low].start, parameter.pieces[high - 1]
        self.parameter, self.length = parameter, last.start + last.floats - begin
        self.hyper = build.staged.hyper if parameter.is_filters else build.staged.hyper_biases
        states = {
            name: address + 4 * begin
            for name, address in zip(optimizer.state_names, parameter.states, strict=True)
        }
        self.average = states.pop(AVERAGE, None)
        self.values = parameter.stored.address + 4 * begin
        self._given = {
            "parameters": self.values,
            "gradient": made.address if made else parameter.gradient + 4 * begin,
            **states,
            "hyper": self.hyper,
            "scale": scale.address if scale else 0,
            "length": self.length,
        }
        self.stored = parameter.stored_region(low, high)
        self.reads = [
            made.region() if made else parameter.gradient_region(low, high),
            self.stored,
            build.staged.given.region(),
            *([scale.region()] if scale else []),
        ]

    def words(self, kernel: Kernel) -> dict[str, float]:
        """Return the arguments of a kernel; 0 for states that are not kept."""
        return {**dict.fromkeys(kernel.fields, 0), **self._given}


def _emit_average(step: Step, build: Build, part: _Range, *, follows: bool = False) -> None:
    assert part.average is not None
    step.add(
        moving_average,
        {
            "values": part.values,
            "average": part.average,
            "share": part.hyper + 8 * SHARE_AT,
            "length": part.length,
        },
        what=Identity(part.parameter.name, Pass.UPDATE, Part.AVERAGE),
        cost=part.length * 12 / MEMORY_RATE,
        # Nobody else touches an average, and the next update waits until this has read the values.
        reads=[part.stored, build.staged.given.region()],
        writes=[],
        follows=follows,
    )


def _emit_clip(step: Step, build: Build, parameters: Sequence[Parameter]) -> Buffer:
    """Declare the tasks of the norm over all gradients; return the buffer of the factor by which all are scaled."""
    # One float64 for each parameter, added in order.
    partials = build.scratch(Name(NORM_PARTIALS), 2 * len(parameters))
    scale = build.scratch(Name(SCALE), 1)
    for index, parameter in enumerate(parameters):
        step.add(
            sum_of_squares,
            {
                "source": parameter.gradient,
                "length": parameter.floats,
                "partial": partials.address + 8 * index,
            },
            what=Identity(parameter.name, Pass.UPDATE, Part.NORM),
            cost=parameter.floats * 4 / MEMORY_RATE,
            reads=[parameter.gradient_region()],
            writes=[partials.region(index, index + 1)],
        )
    step.add(
        clip_scale,
        {
            "partials": partials.address,
            "count": len(parameters),
            "max_norm": build.staged.max_norm,
            "scale": scale.address,
            "norm": 0,
        },
        what=Identity(None, Pass.UPDATE, Part.CLIP),
        cost=1e-6,
        reads=[partials.region(0, len(parameters)), build.staged.given.region()],
        writes=[scale.region()],
    )
    return scale
