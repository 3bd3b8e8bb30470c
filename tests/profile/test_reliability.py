"""What of recordings cannot be is said, and then nothing is scaled from them."""

from __future__ import annotations

from typing import Any

import pytest
from recorded import recorded, small_model

from znnpy.profile import command
from znnpy.profile.reliability import UNSCALED, find_doubts


def run(threads: int, seconds: float, **more: Any) -> dict[str, Any]:
    """A run of tasks of 0.9 s, dispatched in no time."""
    busy = 0.9
    lost = {"tasks": busy, "without a core": 0.0, "data": threads * seconds - busy}
    usual = {"work": busy, "disturbance": 1.05, "caller": 0.0, "losses": lost}
    return {"threads": threads, "seconds": seconds} | usual | more


def without_a_core(threads: int, seconds: float, away: float, **more: Any) -> dict[str, Any]:
    lost = {"tasks": threads * seconds - away, "without a core": away}
    return run(threads, seconds, losses=lost, **more)


QUIET = {
    "as fast as it can be": [run(1, 1.0), run(2, 0.5)],
    "a little faster, by two caches": [run(1, 1.0), run(2, 0.45, work=0.8)],
    "more threads than cores": [run(1, 1.0), run(4, 0.1, disturbance=9.0)],
    "who hands updates over has a core": [without_a_core(2, 0.5, 0.45, caller=0.4)],
    "alone": [run(1, 1.0)],
    "only more threads than cores": [run(4, 1.0, disturbance=9.0)],
}


@pytest.mark.parametrize("runs", QUIET.values(), ids=QUIET)
def test_what_can_be_is_not_doubted(runs: list[dict[str, Any]]) -> None:
    assert find_doubts(runs, {"1": -0.2, "2": 0.2, "4": 3.0}, cores=2) == []


DOUBTED = {
    "more than linear": (
        [run(1, 1.0), run(2, 0.376)],
        "2 workers cannot be 2.66 times as fast as 1 (376 ms and 1 s were measured): something else took",
    ),
    "a slow base": (
        [run(1, 1.1), run(2, 0.5, work=0.7)],
        "The tasks of 1 worker took 1.29 times as long as the same beside others, on 2",
    ),
    "other programs while workers searched": (
        [without_a_core(1, 1.0, 0.3), run(2, 0.5)],
        "The measurement was disturbed: 1 worker had no core for 30% of the time",
    ),
    "more of them than the caller": (
        [run(1, 1.0), without_a_core(2, 0.6, 0.6, caller=0.1)],
        "The measurement was disturbed: 2 workers had no core for 42% of the time",
    ),
    "other programs amid tasks": (
        [run(1, 1.0), run(2, 0.5, disturbance=1.4)],
        "The measurement was disturbed: on 2 workers tasks took 1.4 times their median time",
    ),
    "nobody knows what": (
        [run(1, 1.0), run(2, 0.8)],
        "The simulation says 480 ms where 2 workers took 800 ms",
    ),
}


@pytest.mark.parametrize(("runs", "words"), DOUBTED.values(), ids=DOUBTED)
def test_what_cannot_be_is_said(runs: list[dict[str, Any]], words: str) -> None:
    error = {"1": 0.0, "2": 0.48 / runs[1]["seconds"] - 1 if "480" in words else 0.0}
    said, end = find_doubts(runs, error, cores=2)
    assert said.startswith(words)
    assert end == UNSCALED


def test_the_advice_of_every_run_begins_with_what_is_doubted_of_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What other ranks are waited for is not simulated, and so no error of it."""
    made = {threads: (recorded(threads), small_model(threads)) for threads in (1, 2)}
    simulation = {
        "workers": [1, 2], "seconds": [1.0, 0.5], "error": {"1": 0.3, "2": 0.0}, "memory": None,
        "waits": [{}, {}],
    }  # fmt: skip
    summary = {"machine": {"cores": 8, "sgemm_gflops": 50.0}, "simulation": simulation}
    monkeypatch.setattr(command, "find_doubts", lambda runs, error, cores: [f"{error} {cores}"])
    try:
        found = command._runs(made, summary | {"what": "update", "world": 1})
        over = command._runs(made, summary | {"what": "update", "world": 2})
    finally:
        for _, model in made.values():
            model.close()
    doubts = found["doubts"]
    assert doubts == ["{'1': 0.3, '2': 0.0} 8"]
    assert over["doubts"] == ["{} 8"]
    assert [it["advice"][: len(doubts)] for it in found["runs"]] == [doubts, doubts]
