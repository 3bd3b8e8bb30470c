"""Learning-rate schedules: the rate of each update, from the config and the iteration alone."""

from __future__ import annotations

import math

from znnpy.config.models import (
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    InverseSchedule,
    StepSchedule,
    TrainingSection,
)


def learning_rate(training: TrainingSection, iteration: int) -> float:
    """Return the learning rate of the update that follows `iteration` finished ones."""
    start, schedule = training.learning_rate, training.schedule
    match schedule:
        case ConstantSchedule():
            return start
        case StepSchedule():
            # All schedules are functions of the iteration alone: a resumed run needs no state.
            return start * float(schedule.factor ** (iteration // schedule.every))
        case ExponentialSchedule():
            return start * float(schedule.factor ** (iteration / schedule.every))
        case InverseSchedule():
            return start * float((1 + schedule.gamma * iteration) ** -schedule.power)
        case CosineSchedule():
            # Beyond its length the cosine stays at the final rate.
            length = schedule.every or training.iterations
            fallen = (1 - math.cos(math.pi * min(1.0, iteration / length))) / 2
            return start * (1 - fallen * (1 - schedule.final))
