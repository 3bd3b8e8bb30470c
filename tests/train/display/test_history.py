"""Curves of any length keep their means; logs that are damaged or begun anew keep what is sound."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from znnpy.train.display.history import MOST, Curve, read_history


@pytest.mark.parametrize("count", [1, 2 * MOST - 1, 2 * MOST, 7 * MOST + 3, 40_000])
def test_a_curve_of_any_length_keeps_its_mean_and_its_last_point(count: int) -> None:
    curve, values = Curve(), np.random.default_rng(0).random(count)
    for n, value in enumerate(values, 1):
        curve.add(n, value)
    points = np.array(curve.points)
    each = np.diff(np.concatenate([[0], points[:, 0]]))
    assert len(points) <= 2 * MOST
    assert points[-1, 0] == count
    assert (points[:, 1] * each).sum() / count == pytest.approx(values.mean())


def test_what_is_no_number_is_left_out() -> None:
    curve = Curve()
    for odd in (None, float("nan"), float("inf"), "1", True, [1]):
        curve.add(1, odd)
    assert (curve.points, curve.last) == ([], None)


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_logs_are_read_up_to_an_iteration_whatever_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(
        lines({"iteration": 1, "loss": 2.0, "voxel_error": 0.5}, {"iteration": 2, "loss": 1.0})
        + "damage\n"
        + lines({"iteration": 3, "validation": {"loss": 0.5, "dice": 0.25}})
        + lines({"iteration": 3, "changed": "training.learning_rate"})
        + lines({"iteration": 9, "loss": 0.1})
    )
    (tmp_path / "looks.jsonl").write_text(
        lines({"iteration": 0, "weights": {"": 3.0, "conv1": 2.0}, "living": 0.75})
    )
    found = read_history(tmp_path, 5)
    assert found.loss.points == [(1, 2.0), (2, 1.0)]
    assert found.voxel_error.points == [(1, 0.5)]
    assert found.validation["dice"].points == [(3, 0.25)]
    assert found.weights["conv1"].points == [(0, 2.0)]
    assert found.living.last == 0.75
    assert found.changes == [(3, "training.learning_rate")]
    assert found.iteration == 3


def test_seconds_of_several_starts_are_added_and_updates_made_again_count_once(
    tmp_path: Path,
) -> None:
    rows = [(1, 1.0, 10.0), (9, 2.5, 20.0), (4, 1.0, 30.0), (12, 4.0, 40.0)]
    (tmp_path / "timings.jsonl").write_text(
        lines(*({"iteration": n, "seconds": s, "updates_per_s": u} for n, s, u in rows), [1], 3)
    )
    found = read_history(tmp_path)
    assert found.taken == 2.5 + 4.0
    assert found.updates_per_s.points == [(1, 10.0), (9, 20.0), (12, 40.0)]


def test_a_run_without_logs_has_no_history(tmp_path: Path) -> None:
    found = read_history(tmp_path)
    assert (found.iteration, found.taken, found.loss.points) == (0, 0.0, [])
