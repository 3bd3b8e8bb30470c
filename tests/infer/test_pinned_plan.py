"""A pinned plan gives one digest of the weights, whatever a lost cache would measure."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from znnpy.config import config_from
from znnpy.engine import autotune, timing
from znnpy.errors import PlanError
from znnpy.infer.config_model import training_model
from znnpy.network import build_network
from znnpy.plan import Method, fftw, wisdom
from znnpy.plan.choose import estimated
from znnpy.plan.record import saved_plan, to_text

LAYERS = [  # so long that whole-image FFT is a candidate
    {"conv": {"channels": 4, "size": [1, 21, 21], "function": "relu"}},
    {"conv": {"channels": 1, "size": [1, 21, 21]}},
]
ESTIMATE = 1 << 6  # what FFTW plans without measuring
# What a machine may find on three days: the fastest algorithm, and FFTW's plans.
MOODS = (("direct", None), ("fft", None), ("fft", ESTIMATE))


def fresh_cache(monkeypatch, folder: Path, fastest: str, effort: int | None = None) -> None:
    """Nothing is known, and this machine prefers one algorithm today."""
    folder.mkdir()
    monkeypatch.setattr(wisdom, "path", lambda: folder / "wisdom.json")
    monkeypatch.setattr(fftw, "wisdom_path", lambda: folder / "fftw.wisdom")
    for name, value in (("_plans", {}), ("_pinned", None), ("_latest", None)):
        monkeypatch.setattr(fftw, name, value)
    monkeypatch.setattr(fftw, "_effort", lambda count: fftw.MEASURE if effort is None else effort)
    monkeypatch.setattr(autotune, "measure_all", lambda *_: None)  # compiles what loses

    def timed(shape, methods, max_memory=None, bench=None):
        costs = {method: estimated(shape, method) for method in methods}
        for part in costs[Method(fastest)]:
            costs[Method(fastest)][part] *= 1e-6
        return costs

    monkeypatch.setattr(timing, "timed", timed)


def digest(plan: Path | None = None) -> tuple[str, str]:
    """Weights after some updates, and the plan that they were made by as a file has it."""
    config = config_from(
        {
            "network": {"layers": LAYERS},
            "data": {},
            "training": {"output_shape": [6, 7, 8], "loss": "square"}
            | ({} if plan is None else {"plan": str(plan)}),
            "run": {"threads": 2},
        }
    )
    with training_model(config, build_network(config.network), None) as model:
        x = np.random.default_rng(0).standard_normal((1, 1, *model.input_shape), np.float32)
        for _ in range(3):
            model.step(x, x[:, :, :6, :7, :8], learning_rate=0.01)
        found = hashlib.sha256()
        for _, array in sorted(model.parameters.items()):
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest(), to_text(saved_plan(model.plan))


def test_three_fresh_caches_and_one_digest(tmp_path, monkeypatch):
    free = []
    for number, mood in enumerate(MOODS):
        fresh_cache(monkeypatch, tmp_path / f"free {number}", *mood)
        free.append(digest())
    assert free[0][0] != free[1][0]  # without a plan a cache decides
    assert json.loads(free[1][1])["fftw"] != json.loads(free[2][1])["fftw"]
    (tmp_path / "plan.json").write_text(free[1][1])
    for number, mood in enumerate(MOODS):
        fresh_cache(monkeypatch, tmp_path / f"pinned {number}", *mood)
        assert digest(tmp_path / "plan.json") == free[1]


def test_pinned_wisdom_decides_over_the_machine_and_leaves_it_alone(tmp_path, monkeypatch):
    size = (30, 36, 40)
    fresh_cache(monkeypatch, tmp_path / "a", "fft")
    fftw.plan_forward(size)
    text = fftw.known()
    fresh_cache(monkeypatch, tmp_path / "b", "fft", ESTIMATE)
    fftw.plan_forward(size)
    other, kept = fftw.known(), (tmp_path / "b" / "fftw.wisdom").read_bytes()
    assert other != text
    fftw._plans.clear()
    fftw.pin(text)
    fftw.plan_forward(size)
    assert (tmp_path / "b" / "fftw.wisdom").read_bytes() == kept
    fftw.plan_forward((12, 12, 12))  # unknown to what is pinned: the machine's
    assert sorted(text.splitlines()[1:-1]) != sorted(kept.decode().splitlines()[1:-1])
    assert set(text.splitlines()) <= set(fftw.known().splitlines())


def test_a_plan_of_another_network_is_refused(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps({"layers": {"other": {}}}))
    with pytest.raises(PlanError, match=r"training\.plan: .* is for layers \['other'\]"):
        digest(tmp_path / "plan.json")
