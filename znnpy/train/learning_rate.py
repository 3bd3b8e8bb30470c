"""Learning-rate schedules: the rate of each update, from the config and the iteration alone."""

from __future__ import annotations

import math

from znnpy.config.models import (
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    InverseSchedule,
    OneCycleSchedule,
    PolySchedule,
    StepSchedule,
    TrainingSection,
    WarmupSection,
)


def learning_rate(training: TrainingSection, iteration: int) -> float:
    """Return the learning rate of the update that follows `iteration` finished ones."""
    # All schedules are functions of the iteration alone: a resumed run needs no state.
    full, schedule = training.full_rate, training.schedule
    if isinstance(schedule, OneCycleSchedule):
        return full * _one_cycle(schedule, iteration, schedule.every or training.iterations)
    warmup = schedule.warmup
    if warmup is None:
        return full * _factor(schedule, iteration, training.iterations)
    if iteration < warmup.iterations:
        return full * _warming(warmup, iteration)
    # At least 1: a run may end within its warm-up.
    left = max(1, training.iterations - warmup.iterations)
    return full * _factor(schedule, iteration - warmup.iterations, left)


def _warming(warmup: WarmupSection, iteration: int) -> float:
    return warmup.start + (1 - warmup.start) * (iteration / warmup.iterations)


def _factor(
    schedule: ConstantSchedule
    | StepSchedule
    | ExponentialSchedule
    | InverseSchedule
    | CosineSchedule
    | PolySchedule,
    iteration: int,
    iterations: int,
) -> float:
    """Return what the learning rate is multiplied by, in a training of so many iterations."""
    match schedule:
        case ConstantSchedule():
            return 1.0
        case StepSchedule():
            return float(schedule.factor ** (iteration // schedule.every))
        case ExponentialSchedule():
            return float(schedule.factor ** (iteration / schedule.every))
        case InverseSchedule():
            return float((1 + schedule.gamma * iteration) ** -schedule.power)
        case CosineSchedule():
            # Beyond its length the cosine stays at the final rate.
            length = schedule.every or iterations
            fallen = (1 - math.cos(math.pi * min(1.0, iteration / length))) / 2
            return 1 - fallen * (1 - schedule.final)
        case PolySchedule():
            gone = min(1.0, iteration / (schedule.every or iterations))
            return float((1 - gone) ** schedule.power)


def _one_cycle(schedule: OneCycleSchedule, iteration: int, length: int) -> float:
    """Return the factor as by PyTorch's `OneCycleLR`: highest at `pct_start`, least at the last update."""
    top, end = schedule.pct_start * length - 1, length - 1
    first = 1 / schedule.div_factor
    last = first / schedule.final_div_factor
    if iteration <= top:
        return _between(schedule, first, 1.0, iteration / top if top else 1.0)
    # A cycle whose top lies before its first update begins to fall there.
    gone = (iteration - top) / (end - top) if end > top else 1.0
    return _between(schedule, 1.0, last, min(1.0, gone))


def _between(schedule: OneCycleSchedule, start: float, end: float, gone: float) -> float:
    if schedule.anneal == "linear":
        return start + (end - start) * gone
    return end + (start - end) / 2 * (1 + math.cos(math.pi * gone))
