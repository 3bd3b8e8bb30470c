"""How contestants are compared: equal results first, then pairs that alternate in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import psutil
from stopwatch import seconds as timed

from peers.ours import Arrays, Contestant

LOSS_TOLERANCE = 1e-5
"""Relative difference of the losses."""

GRADIENT_TOLERANCE = 1e-3
"""Norm of the difference of each gradient, or output, relative to its own norm, on the best of a few samples.

Where two voxels of a window, or a sum and zero, are equal to rounding, a maximum or relu may go
either way in float32, and one such voxel among a million moves a gradient by 1e-4 to 1e-3; PyTorch
and znnpy are both that far from a float64 reference then, and at 1e-6 on samples without one. It is
chance, so it differs from sample to sample; a mistake does not, and moves far more."""

SAMPLES = 8

SAMPLE_SECONDS = 0.3
LONG_SECONDS = 5.0  # runs as long as this need no warm-up: it counts as the first round
PAUSE = 0.02  # an OpenMP runtime spins for some milliseconds after its last parallel region


@dataclass(frozen=True)
class Difference:
    """How far two contestants' results are apart, relative."""

    loss: float
    gradient: float
    worst: str
    samples: int

    @property
    def within(self) -> bool:
        """Whether both stay within the stated tolerances."""
        return self.loss <= LOSS_TOLERANCE and self.gradient <= GRADIENT_TOLERANCE


@dataclass(frozen=True)
class Rounds:
    """Seconds of each contestant, round by round; `others`: cores that other processes kept busy."""

    seconds: dict[str, list[float]]
    others: float

    def ratios(self, peer: str, name: str = "znnpy") -> list[float]:
        """The peer's time by the other's, of each round."""
        pairs = zip(self.seconds[name], self.seconds[peer], strict=True)
        return [theirs / own for own, theirs in pairs]


def difference(one: Contestant, other: Contestant) -> Difference:
    """Compare losses and all gradients of two contestants; `other` is the yardstick.

    The largest difference of any loss, and of each gradient the smallest over the samples; goes on
    to the next sample only while a gradient is outside the tolerance.
    """
    losses: list[float] = []
    smallest: dict[str, float] = {}
    for seed in range(SAMPLES):
        loss, gradients = one.results(seed)
        expected_loss, expected = other.results(seed)
        losses.append(abs(loss - expected_loss) / abs(expected_loss))
        for name, apart in _relative_norms(gradients, expected).items():
            smallest[name] = min(apart, smallest.get(name, np.inf))
        worst = max(smallest, key=lambda name: smallest[name])
        if smallest[worst] <= GRADIENT_TOLERANCE:
            break
    return Difference(max(losses), smallest[worst], worst, seed + 1)


def _relative_norms(found: Arrays, expected: Arrays) -> dict[str, float]:
    if found.keys() != expected.keys():
        raise SystemExit(f"gradients of {sorted(found)} beside gradients of {sorted(expected)}")
    norms = {}
    for name, value in expected.items():
        apart = np.linalg.norm(found[name].astype(np.float64) - value)
        ratio = float(apart / max(np.linalg.norm(value.astype(np.float64)), 1e-30))
        norms[name] = ratio if np.isfinite(ratio) else np.inf
    return norms


def alternate(contestants: Mapping[str, Contestant], rounds: int) -> Rounds:
    """Time all in turn; who is first changes from round to round."""
    others, names = _Others(), list(contestants)
    warm = {name: per_run(who, 1) for name, who in contestants.items()}
    long = min(warm.values()) > LONG_SECONDS
    seconds = {name: [warm[name]] if long else [] for name in names}
    repeats = {name: 1 if long else _repeats(who) for name, who in contestants.items()}
    for _ in range(rounds - long):
        for name in names:
            time.sleep(PAUSE)
            seconds[name].append(per_run(contestants[name], repeats[name]))
        names = names[1:] + names[:1]
    return Rounds(seconds, others.cores())


def fastest(candidates: Mapping[str, Contestant], rounds: int = 3) -> str:
    """Name of the candidate with the lowest median, measured in turns."""
    seconds = alternate(candidates, rounds).seconds
    return min(seconds, key=lambda name: statistics.median(seconds[name]))


def per_run(who: Contestant, count: int) -> float:
    """Seconds of one run, over some in a row."""
    return timed(who.run, count) / count


def _repeats(who: Contestant) -> int:
    """How many runs make one sample of a contestant that has run once."""
    # Not by its first run, in which graphs are made and code is loaded, for longer than many updates take: a sample of
    # one update has none in a row.
    if per_run(who, 1) > SAMPLE_SECONDS:
        return 1
    return max(1, round(SAMPLE_SECONDS / per_run(who, 1)))


class _Others:
    """Watches the processor time that other processes use than this one and what it started: it spoils measurements."""

    def __init__(self) -> None:
        self._start = self._now()

    def cores(self) -> float:
        """Mean number of cores that others kept busy since this object was made."""
        wall, busy, own = (b - a for a, b in zip(self._start, self._now(), strict=True))
        return max(0.0, (busy - own) / wall)

    @staticmethod
    def _now() -> tuple[float, float, float]:
        times, this = psutil.cpu_times(), psutil.Process()
        own = 0.0
        for one in (this, *this.children(recursive=True)):
            # Compilers that contestants have started may end meanwhile.
            with suppress(psutil.NoSuchProcess):
                spent = one.cpu_times()
                own += spent.user + spent.system
        return time.perf_counter(), sum(times) - times.idle - times.iowait, own


def sgemm_rate(size: int = 2048, rounds: int = 5) -> float:
    """float32 matrix product in GFLOP/s with as many threads as PyTorch now has; best of some."""
    import torch

    a, b = torch.rand(size, size), torch.rand(size, size)
    out = torch.mm(a, b)
    best = min(timed(lambda: torch.mm(a, b, out=out)) for _ in range(rounds))
    return 2 * size**3 / best / 1e9
