"""U-Nets side by side: each contestant in a process of its own, exact results first, then in turns.

PyTorch in the faster of its memory formats, eager and compiled; for inference also ONNX Runtime and OpenVINO. Results
are compared with PyTorch's in float64, so that it shows who errs: in channels_last_3d the gradients of
nets with batch normalisation are a hundredth off for large images. Smooth twins of the nets (`peers/smooth.py`), which
have no voxels that rounding decides, show whether programs compute the same.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from peers.processes import SCRIPTS, Worker, started
from peers.timing import GRADIENT_TOLERANCE, LONG_SECONDS, LOSS_TOLERANCE, PAUSE, SAMPLES
from peers.unet_nets import NETS, Arrays

ANOTHER = 0.1
"""Distance from float64 beyond which a peer computes something else; below, and out of tolerance, it is inexact."""
DIFFERENT = "RESULTS DIFFER"
INEXACT = "inexact"
AS_FAR = 2.0
"""How many times as far from float64 as PyTorch in float32 znnpy may be where it is out of tolerance.

In deep nets some of millions of relus are decided by less than rounding in every sample; how many, and how far
gradients are off, depends on the order in which each program adds. PyTorch adds in another order in each memory format:
the farther one counts, for in nnU-Net they are up to ten times apart. Smooth twins show mistakes of a hundredth.
"""
SMOOTH_TOLERANCE = 1e-4
"""Of each gradient, or output, of a smooth twin, in any sample: five times the largest of the four nets."""
NOTHING = 1e-9
"""Norm of a gradient, relative to the largest, below which it is zero but for rounding in float64.

Those of biases before a normalisation are: every contestant's is rounding, and is compared with the largest.
"""
FORMATS = ("contiguous", "onednn", "channels_last_3d")
WORKER = "peers.unet_worker"
ENGINES = ("onnxruntime", "openvino", "openvino-bfloat16")
WORDS = (
    "net",
    "what",
    "threads",
    "who",
    "ms",
    "range",
    "by znnpy",
    "peak MiB",
    "net MiB",
    "from float64",
)
_KINDS = {"update": (True,), "inference": (False,), "both": (True, False)}


@dataclass(frozen=True)
class Case:
    """A net that is trained or predicts, with so many threads."""

    net: str
    training: bool
    threads: int
    small: bool
    smooth: bool

    @property
    def words(self) -> list[str]:
        """What the process of a contestant is told of it, behind the net."""
        words = ["--training"] * self.training + ["--small"] * self.small
        words += ["--smooth"] * self.smooth
        return ["--threads", str(self.threads), *words]


def bench(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of all nets and threads that the options name, printed as they come."""
    print(" | ".join(WORDS), flush=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        truth = Truth(Path(folder))
        for net in options.unets or NETS:
            for training in _KINDS[options.what]:
                for threads in options.threads:
                    case = Case(net, training, threads, options.small, options.smooth)
                    found = _compared(case, options, truth)
                    for row in found:
                        print(" | ".join(_cells(row)), flush=True)
                    rows += found
    return rows


@dataclass(frozen=True)
class Truth:
    """Results in float64, each made once, by a process that ends then: it needs more memory than the others."""

    folder: Path

    def of(self, case: Case, seed: int) -> Arrays:
        """Output for the sample of a seed, or loss and gradients."""
        kept = self.folder / f"{case.net}-{case.training}-{seed}.npz"
        if not kept.exists():
            with _started(case, "truth", []) as worker:
                worker.ask("results", seed, kept)
        with np.load(kept) as arrays:
            return dict(arrays)


@dataclass
class Apart:
    """How far a contestant is from float64: of losses the largest, of each gradient the smallest over samples.

    A sample in which two voxels of a window tie may move gradients in float32 (`timing.GRADIENT_TOLERANCE`).
    """

    loss: float = 0.0
    smallest: dict[str, float] = field(default_factory=dict)

    @property
    def gradient(self) -> float:
        """The largest of all gradients, or the output's."""
        return max(self.smallest.values())

    def add(self, worker: Worker, seed: int, case: Case, truth: Truth) -> None:
        """One more sample."""
        exact = truth.of(case, seed)
        found, scales = worker.results(seed, truth.folder), _scales(exact)
        if exact.keys() != found.keys():
            names = sorted(exact.keys() ^ found.keys())
            raise SystemExit(f"{worker.name} has other results: {names}")
        for name, value in found.items():
            far = float(np.linalg.norm(value.astype(np.float64) - exact[name]) / scales[name])
            if name == "loss":
                self.loss = max(self.loss, far)
            else:
                self.smallest[name] = min(far, self.smallest.get(name, np.inf))


def _compared(case: Case, options: argparse.Namespace, truth: Truth) -> list[dict[str, Any]]:
    """A row for each contestant of one net, in turns with the others."""
    with ExitStack() as stack:
        everyone = _contestants(case, options, truth.folder)
        truth.of(case, 0)
        workers = [stack.enter_context(_started(case, *who)) for who in everyone]
        apart = _apart(case, workers, truth, _format_of(everyone))
        for number in range(options.rounds + 1):  # the first round warms up
            shift = number % len(workers)
            for worker in workers[shift:] + workers[:shift]:
                time.sleep(PAUSE)
                worker.seconds.append(worker.ask("run", 1))
        peaks = {worker.name: worker.ask("peak") for worker in workers}
    ours = workers[0].seconds[1:]
    return [
        {
            "net": case.net,
            "what": "update" if case.training else "inference",
            "threads": case.threads,
            "who": worker.name,
            "seconds": worker.seconds[1:],
            "ratios": [theirs / own for own, theirs in zip(ours, worker.seconds[1:], strict=True)],
            "peak_bytes": peaks[worker.name],
            "net_bytes": peaks[worker.name] - worker.before,
            **apart[worker.name],
        }
        for worker in workers
    ]


def _contestants(
    case: Case, options: argparse.Namespace, folder: Path
) -> list[tuple[str, list[str]]]:
    """Names and further words of their commands; znnpy first."""
    best = options.format or (FORMATS[0] if case.smooth else _faster(case))
    found = [("znnpy", ["--conv", options.conv]), ("torch", ["--format", best])]
    if options.compiled:
        found.append(("compiled", ["--format", best]))
    if not case.training:
        onnx = folder / f"{case.net}.onnx"
        export = [
            sys.executable,
            "-m",
            WORKER,
            "export",
            case.net,
            *case.words,
            "--onnx",
            str(onnx),
        ]
        subprocess.run(export, check=True, cwd=SCRIPTS, stdout=subprocess.DEVNULL)
        found += [(name, ["--onnx", str(onnx)]) for name in options.engines]
    return found


def _faster(case: Case) -> str:
    """PyTorch's memory format that is faster here, eager; long runs are made once, and ended once they are slower."""
    seconds: dict[str, float] = {}
    for name in FORMATS:
        # A first run of what is not long may take a few times as long as others.
        least = max(min(seconds.values()), LONG_SECONDS) if seconds else None
        with _started(case, "torch", ["--format", name]) as worker:
            first = worker.ask("run", 1, within=least)
            if first is not None:
                again = 0 if first > LONG_SECONDS else 2
                seconds[name] = min([worker.ask("run", 1) for _ in range(again)] or [first])
    return min(seconds, key=lambda name: seconds[name])


def _started(case: Case, name: str, words: list[str]) -> AbstractContextManager[Worker]:
    return started(name, WORKER, case.net, *case.words, *words)


def _format_of(contestants: list[tuple[str, list[str]]]) -> str:
    return dict(contestants)["torch"][-1]


def _apart(case: Case, workers: list[Worker], truth: Truth, best: str) -> dict[str, dict[str, Any]]:
    """How far each is from float64, and whether that is near; more samples until znnpy, the first worker, is.

    Or until it is as near as PyTorch allows: each sample takes float64 a minute where images are large.
    """
    found = {worker.name: Apart() for worker in workers}
    most = SMOOTH_TOLERANCE if case.smooth else GRADIENT_TOLERANCE
    for seed in range(1 if case.smooth else SAMPLES):
        for worker in workers:
            found[worker.name].add(worker, seed, case, truth)
        theirs = found["torch"].gradient
        allowed = AS_FAR * theirs if theirs <= ANOTHER and not case.smooth else 0.0
        if found["znnpy"].gradient <= max(most, allowed):
            most = max(most, allowed)
            break
    if found["znnpy"].gradient > most and not case.smooth:
        most = max(most, AS_FAR * _farthest(case, found, truth, best))
    return {name: _told(name, apart, case, most) for name, apart in found.items()}


def _farthest(case: Case, found: dict[str, Apart], truth: Truth, best: str) -> float:
    """PyTorch's larger distance of both memory formats; one that computes something else does not count."""
    far = [found["torch"].gradient]
    for name in FORMATS:
        if name != best:
            apart = Apart()
            with _started(case, "torch", ["--format", name]) as worker:
                for seed in range(SAMPLES):
                    apart.add(worker, seed, case, truth)
            print(f"{case.net}: PyTorch in {name} is {apart.gradient:.1e} from float64", flush=True)
            far.append(apart.gradient)
    return max((one for one in far if one <= ANOTHER), default=0.0)


def _told(name: str, apart: Apart, case: Case, most: float) -> dict[str, Any]:
    """Distances and verdict: nothing for results within the tolerances; `most`: what znnpy may be off."""
    loss, gradient = apart.loss, apart.gradient
    near = SMOOTH_TOLERANCE if case.smooth else GRADIENT_TOLERANCE
    verdict = ""
    if loss > LOSS_TOLERANCE or gradient > near:
        ours = loss <= LOSS_TOLERANCE and gradient <= min(ANOTHER, most)
        theirs = max(loss, gradient) <= ANOTHER
        verdict = INEXACT if (ours if name == "znnpy" else theirs) else DIFFERENT
    return {
        "difference": gradient,
        "loss_difference": loss,
        "verdict": verdict,
        "equal": verdict != DIFFERENT,
    }


def _scales(exact: Arrays) -> dict[str, float]:
    """What distances from each result are relative to: its norm, or the largest gradient's if it is nothing."""
    norms = {name: float(np.linalg.norm(value)) for name, value in exact.items()}
    largest = max(norm for name, norm in norms.items() if name != "loss")
    return {name: norm if norm > NOTHING * largest else largest for name, norm in norms.items()}


def _cells(row: dict[str, Any]) -> list[str]:
    times = [seconds * 1e3 for seconds in row["seconds"]]
    return [
        *(str(row[key]) for key in ("net", "what", "threads", "who")),
        f"{statistics.median(times):.1f}",
        f"{min(times):.1f}-{max(times):.1f}",
        f"{statistics.median(row['ratios']):.2f}",
        f"{row['peak_bytes'] / 2**20:.0f}",
        f"{row['net_bytes'] / 2**20:.0f}",
        f"{row['difference']:.1e} {row['verdict']}".rstrip(),
    ]


def markdown(rows: list[dict[str, Any]]) -> str:
    """The rows as a table."""
    lines = [list(WORDS), ["---"] * len(WORDS), *map(_cells, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
