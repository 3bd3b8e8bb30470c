"""Every schedule that PyTorch has, beside its own, rate by rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from znnpy.config.models import TrainingSection
from znnpy.train.learning_rate import learning_rate

torch = pytest.importorskip("torch")

FULL, LENGTH = 0.5, 40
lr = torch.optim.lr_scheduler
Made = Callable[[Any], Any]


def warmed(start: float, count: int, after: Made) -> Made:
    """A linear warm-up, and another schedule after it."""

    def made(optimizer: Any) -> Any:
        first = lr.LinearLR(optimizer, start_factor=start, total_iters=count)
        return lr.SequentialLR(optimizer, [first, after(optimizer)], milestones=[count])

    return made


def cosine(length: int, final: float = 0.0) -> Made:
    return lambda it: lr.CosineAnnealingLR(it, length, eta_min=final * FULL)


def poly(length: int, power: float) -> Made:
    return lambda it: lr.PolynomialLR(it, total_iters=length, power=power)


def one_cycle(**keys: Any) -> Made:
    return lambda it: lr.OneCycleLR(it, max_lr=FULL, total_steps=LENGTH, **keys)


CASES: list[tuple[Any, Made]] = [
    ({"kind": "step", "every": 7, "factor": 0.3}, lambda it: lr.StepLR(it, 7, 0.3)),
    ({"kind": "exponential", "factor": 0.9}, lambda it: lr.ExponentialLR(it, 0.9)),
    ("cosine", cosine(LENGTH)),
    ({"kind": "cosine", "final": 0.1}, cosine(LENGTH, 0.1)),
    ("poly", poly(LENGTH, 0.9)),
    ({"kind": "poly", "every": 15, "power": 2}, poly(15, 2)),
    ("one_cycle", one_cycle()),
    ({"kind": "one_cycle", "anneal": "linear"}, one_cycle(anneal_strategy="linear")),
    (
        {"kind": "one_cycle", "pct_start": 0.1, "div_factor": 5, "final_div_factor": 10},
        one_cycle(pct_start=0.1, div_factor=5, final_div_factor=10),
    ),
    ({"kind": "one_cycle", "pct_start": 0}, one_cycle(pct_start=0.0)),
    (
        {"kind": "constant", "warmup": {"iterations": 8, "start": 0.25}},
        lambda it: lr.LinearLR(it, start_factor=0.25, total_iters=8),
    ),
    ({"kind": "cosine", "warmup": 8, "final": 0.2}, warmed(0.01, 8, cosine(LENGTH - 8, 0.2))),
    ({"kind": "poly", "warmup": 5}, warmed(0.01, 5, poly(LENGTH - 5, 0.9))),
    (
        {"kind": "poly", "every": 9, "warmup": {"iterations": 12, "start": 1}},
        warmed(1, 12, poly(9, 0.9)),
    ),
    (
        {"kind": "step", "every": 4, "factor": 0.5, "warmup": {"iterations": 6, "start": 0.1}},
        warmed(0.1, 6, lambda it: lr.StepLR(it, 4, 0.5)),
    ),
    (
        {"kind": "exponential", "factor": 0.8, "warmup": 3},
        warmed(0.01, 3, lambda it: lr.ExponentialLR(it, 0.8)),
    ),
]


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's own, of schedules in a row
@pytest.mark.parametrize(
    ("schedule", "theirs"), CASES, ids=lambda it: "torch" if callable(it) else str(it)[:50]
)
def test_rates(schedule: Any, theirs: Made) -> None:
    training = TrainingSection(
        output_shape=(1, 1, 1), iterations=LENGTH, learning_rate=FULL, schedule=schedule
    )
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=FULL)
    scheduler = theirs(optimizer)
    for iteration in range(LENGTH):
        wanted = optimizer.param_groups[0]["lr"]
        assert learning_rate(training, iteration) == pytest.approx(wanted, rel=1e-9, abs=1e-12)
        if iteration < LENGTH - 1:
            optimizer.step()
            scheduler.step()
