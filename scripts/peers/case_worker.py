"""One contestant with one case (`peers/cases.py`) in a process of its own; what it does is in `peers/processes.py`.

Started by `bench_peers.py`, which has written the case to a file. All begin with the same weights, drawn by one seed.
"""

from __future__ import annotations

import argparse
import importlib
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from peers.cases import Case, ImageCase
from peers.ours import SEED, Arrays, Contestant, Znnpy
from peers.processes import Results, Worker, obey, peak, started
from znnpy.network import initial_parameters


class Obeying:
    """A contestant as `obey` asks it: all of its results by name."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant, self.run = contestant, contestant.run

    def results(self, seed: int) -> Results:
        loss, arrays = self.contestant.results(seed)
        return {"loss": np.array(loss), **arrays}


class Remote:
    """A contestant whose process is asked; times of runs include a message there and back, some 0.1 ms."""

    def __init__(self, worker: Worker, folder: Path) -> None:
        self.worker, self.folder = worker, folder

    def results(self, seed: int) -> tuple[float, Arrays]:
        arrays = self.worker.results(seed, self.folder)
        return float(arrays.pop("loss")), arrays

    def run(self, count: int) -> None:
        self.worker.ask("run", count)


@contextmanager
def remote(case: Case, threads: int, folder: Path, who: str, *words: str) -> Iterator[Remote]:
    """Start a contestant with so many threads, in a folder for what is handed over; `words`: its further options."""
    file = folder / "case.pickle"
    file.write_bytes(pickle.dumps(case))
    with started(who, "peers.case_worker", file, "--threads", threads, *words) as worker:
        yield Remote(worker, folder)


def peer_formats(case: Case) -> tuple[str, ...]:
    """PyTorch's memory formats for a case."""
    return tuple(_torch(case)[1])


def _torch(case: Case) -> tuple[type, dict[str, object]]:
    """PyTorch as a contestant with a case, and its memory formats."""
    from peers import contestants, images

    if isinstance(case, ImageCase):
        return images.TorchImages, dict(images.FORMATS)
    return contestants.Torch, dict(contestants.FORMATS)


def _made(case: Case, options: argparse.Namespace) -> Contestant:
    if options.who == "znnpy":
        return Znnpy(case, options.threads, options.conv)
    import torch

    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    maker, _ = _torch(case)
    made: Contestant = maker(
        case,
        initial_parameters(case.network, SEED),
        options.format,
        compiled=options.who == "compiled",
    )
    return made


def main() -> None:
    """Obey until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("who", choices=["znnpy", "torch", "compiled"])
    parser.add_argument("case", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--format")
    parser.add_argument("--conv", default="auto")
    options = parser.parse_args()
    importlib.import_module("znnpy" if options.who == "znnpy" else "torch")
    before = peak()
    obey(Obeying(_made(pickle.loads(options.case.read_bytes()), options)), before)


if __name__ == "__main__":
    main()
