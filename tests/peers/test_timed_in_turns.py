"""How many runs make a sample of contestants (`scripts/bench_peers.py`), by a clock that only runs take forward."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from peers import timing
from peers.ours import Arrays


@dataclass
class Paced:
    """A contestant whose first run takes `first` seconds and each other one `each`."""

    first: float
    each: float
    counts: list[int] = field(default_factory=list)

    def results(self, seed: int) -> tuple[float, Arrays]:
        raise NotImplementedError

    def run(self, count: int) -> None:
        self.counts.append(count)

    def seconds(self, count: int) -> float:
        self.run(count)
        return self.first if len(self.counts) == 1 else count * self.each


@pytest.fixture(autouse=True)
def paced_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(run: Callable[[int], None], count: int) -> float:
        who: Paced = run.__self__  # type: ignore[attr-defined]
        return who.seconds(count)

    monkeypatch.setattr(timing, "timed", timed)
    monkeypatch.setattr(timing, "PAUSE", 0)


def test_a_slow_first_run_does_not_decide_how_many_follow() -> None:
    slow, quick = Paced(first=1.5, each=0.01), Paced(first=0.01, each=0.01)
    rounds = timing.alternate({"slow": slow, "quick": quick}, 3)
    assert slow.counts == quick.counts
    assert slow.counts[-3:] == [30] * 3
    assert rounds.seconds["slow"] == pytest.approx([0.01] * 3)


def test_runs_longer_than_a_sample_are_timed_one_by_one() -> None:
    who = Paced(first=0.7, each=0.6)
    timing.alternate({"who": who}, 2)
    assert who.counts[-2:] == [1, 1]


def test_first_runs_of_many_seconds_count() -> None:
    one, other = Paced(first=8, each=6), Paced(first=9, each=7)
    rounds = timing.alternate({"one": one, "other": other}, 2)
    assert rounds.seconds == {"one": [8, 6], "other": [9, 7]}
