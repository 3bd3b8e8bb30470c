"""Learning-rate schedules (`training.schedule`) and the warm-up that any but one_cycle may begin with.

What they mean is in `train/learning_rate.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from znnpy.fields import (
    Count,
    Fraction,
    NonNegative,
    Positive,
    Probability,
    Strict,
    shorthand,
)

_LENGTH = "(default: training.iterations, less the warm-up)"


class WarmupSection(Strict):
    """Linear warm-up: the learning rate rises to its full value over the first `iterations`."""

    iterations: Count = Field(description="Iterations until the full learning rate.")
    start: Probability = Field(
        default=0.01,
        description="Learning rate of the first update, as a fraction of the full one.",
    )


class ScheduleSection(Strict):
    """A schedule that may begin with a warm-up, after which its own iterations count from 0."""

    kind: Any
    warmup: Annotated[WarmupSection | None, shorthand("iterations", int)] = Field(
        default=None,
        description="Linear warm-up before the schedule, in iterations or as a mapping (default: none).",
    )


class ConstantSchedule(ScheduleSection):
    """The learning rate stays the same."""

    kind: Literal["constant"] = Field(description="Schedule.")


class StepSchedule(ScheduleSection):
    """The learning rate is multiplied by `factor` every `every` iterations."""

    kind: Literal["step"] = Field(description="Schedule.")
    every: Count = Field(description="Iterations between two steps.")
    factor: Positive = Field(default=0.1, description="Factor at each step.")


class ExponentialSchedule(ScheduleSection):
    """The learning rate decays smoothly, by `factor` over every `every` iterations."""

    kind: Literal["exponential"] = Field(description="Schedule.")
    every: Count = Field(default=1, description="Iterations over which `factor` applies once.")
    factor: Positive = Field(description="Factor over `every` iterations.")


class InverseSchedule(ScheduleSection):
    """The learning rate is divided by (1 + gamma * iteration) ** power, as by Caffe's `inv`."""

    kind: Literal["inv"] = Field(description="Schedule.")
    gamma: Positive = Field(description="Factor of the iteration in the divisor.")
    power: Positive = Field(default=0.75, description="Power of the divisor.")


class CosineSchedule(ScheduleSection):
    """Cosine annealing: the learning rate falls along half a cosine to `final` times its start."""

    kind: Literal["cosine"] = Field(description="Schedule.")
    every: Count | None = Field(
        default=None,
        description=f"Iterations of the decay {_LENGTH}; after it the rate stays.",
    )
    final: Annotated[NonNegative, Field(le=1)] = Field(
        default=0.0, description="Learning rate at the end, as a fraction of its start."
    )


class PolySchedule(ScheduleSection):
    """Polynomial decay: the learning rate times (1 - iteration / every) ** power, as in nnU-Net."""

    kind: Literal["poly"] = Field(description="Schedule.")
    every: Count | None = Field(
        default=None,
        description=f"Iterations of the decay {_LENGTH}; after it the rate is 0.",
    )
    power: Positive = Field(default=0.9, description="Power of the remaining fraction.")


class OneCycleSchedule(Strict):
    """One cycle (Smith and Topin 2018): the learning rate rises to its full value, then falls far below its start."""

    kind: Literal["one_cycle"] = Field(description="Schedule.")
    every: Count | None = Field(
        default=None,
        description="Iterations of the cycle (default: training.iterations); after it the rate stays.",
    )
    pct_start: Fraction = Field(
        default=0.3, description="Fraction of the cycle in which the rate rises, in [0, 1)."
    )
    div_factor: Annotated[Positive, Field(ge=1)] = Field(
        default=25.0, description="Learning rate over that of the first update."
    )
    final_div_factor: Annotated[Positive, Field(ge=1)] = Field(
        default=1e4, description="Learning rate of the first update over that of the last one."
    )
    anneal: Literal["cosine", "linear"] = Field(
        default="cosine", description="How it rises and falls: along half a cosine, or linearly."
    )


AnySchedule = (
    ConstantSchedule
    | StepSchedule
    | ExponentialSchedule
    | InverseSchedule
    | CosineSchedule
    | PolySchedule
    | OneCycleSchedule
)
Schedule = Annotated[
    Annotated[AnySchedule, Field(discriminator="kind")],
    shorthand("kind", str),
]


def ends_with_iterations(schedule: AnySchedule) -> bool:
    """Return whether a schedule ends with `training.iterations`, so that its rates depend on their number."""
    match schedule:
        case CosineSchedule() | PolySchedule() | OneCycleSchedule():
            return schedule.every is None
    return False
