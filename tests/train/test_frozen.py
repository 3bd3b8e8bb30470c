"""Rates at which nothing moves."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from znnpy.config.models import TrainingSection
from znnpy.train.frozen import filters_of, idle_from, movement
from znnpy.train.learning_rate import learning_rate


@pytest.mark.parametrize(
    ("schedule", "iterations", "idle"),
    [
        ("constant", 5000, None),
        ("cosine", 5000, None),
        ("poly", 1, None),
        ("one_cycle", 100_000, None),
        ({"kind": "cosine", "warmup": 4000}, 5000, None),
        ({"kind": "exponential", "every": 1000, "factor": 0.5}, 10_000, None),
        ({"kind": "poly", "every": 400}, 1000, 400),
        ({"kind": "poly", "every": 600}, 1000, None),
        ({"kind": "step", "every": 10, "factor": 1e-5}, 900, 10),
        ({"kind": "exponential", "factor": 0.9}, 1000, 88),
    ],
)
def test_most_updates_at_next_to_no_rate(schedule, iterations, idle) -> None:
    training = TrainingSection(output_shape=(1, 1, 1), iterations=iterations, schedule=schedule)
    assert idle_from(partial(learning_rate, training), iterations) == idle


def test_movement_is_that_of_the_filters_that_moved_farthest() -> None:
    rng = np.random.default_rng(0)
    before = {name: rng.normal(size=(3, 2, 1, 3, 3)).astype(np.float32) for name in "abc"}
    before |= {"bias": np.ones(3, np.float32), "zeros": np.zeros((1, 1, 1, 1, 1), np.float32)}
    kept = filters_of(before, frozenset("c"))
    assert sorted(kept) == ["a", "b"]
    after = before | {"a": 1.001 * before["a"], "b": 0.98 * before["b"], "c": 2 * before["c"]}
    assert movement(kept, after) == pytest.approx(0.02, rel=1e-4)
    assert movement(kept, before) == 0
