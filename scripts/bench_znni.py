"""ZNNi's four networks (arXiv 1606.05688), random weights, dense: voxels/s a core beside the paper's.

    python scripts/bench_znni.py n337 n537 n726 n926 --side 512 --max-memory 8GiB --threads 1

The patch is the one that `znnpy predict` would choose for a cube of `--side` output voxels. One pass makes
memory and caches ready, the fastest of the others counts. Prints a table's rows, one for each network.
"""

from __future__ import annotations

import argparse

import numpy as np
from peers.cases import INFERENCE, Case, inference_case
from pydantic import ByteSize, TypeAdapter
from stopwatch import seconds

import znnpy
from znnpy.infer.blocks import Region
from znnpy.infer.grid import Grid
from znnpy.infer.patch_search import Candidate, best_patch, counted_workers

# Dense output voxels/s of ZNNi on 72 cores (4 x Xeon E7-8890v3), by the paper's table of CPU results.
PAPER, PAPER_CORES = {"n337": 262_131, "n537": 194_683, "n726": 300_312, "n926": 249_190}, 72
HEAD = (
    "| net | threads | patch | memory GiB | seconds a patch | voxels/s | voxels/s a core | "
    "ZNNi, voxels/s a core | ratio |"
)


def main() -> None:
    """Choose, run, print."""
    options = _options()
    print(HEAD, "|" + " --- |" * 9, sep="\n")
    limit = TypeAdapter(ByteSize).validate_python(options.max_memory)
    for name in options.nets:
        case = inference_case(name)
        chosen = best(case, options.side, limit)
        each = timed(case, chosen, options)
        whole = Grid(chosen.patch).count(Region((0, 0, 0), (options.side,) * 3)) * each
        rate, paper = options.side**3 / whole, PAPER[name] / PAPER_CORES
        a_core = rate / options.threads
        words = [
            *(name, str(options.threads), " x ".join(map(str, chosen.patch))),
            *(f"{chosen.bytes(counted_workers()) / (1 << 30):.1f}", f"{each:.2f}"),
            *(f"{rate:,.0f}", f"{a_core:,.0f}", f"{paper:,.0f}", f"{a_core / paper:.1f}"),
        ]
        print(f"| {' | '.join(words)} |", flush=True)


def best(case: Case, side: int, limit: int) -> Candidate:
    """The patch with the least estimated cost for a cube of output voxels, within the memory."""

    def needs(candidate: Candidate) -> int:
        return candidate.bytes(counted_workers())

    return best_patch(case.network, Region((0, 0, 0), (side,) * 3), "auto", needs, limit)


def timed(case: Case, chosen: Candidate, options: argparse.Namespace) -> float:
    """Seconds of one forward pass, the fastest after the first."""
    plan = chosen.plan.to_record()
    shape = inference_case(case.name.split(",")[0], chosen.patch)
    x, _ = shape.sample()
    with znnpy.Model(
        case.network, output_shape=chosen.patch, threads=options.threads, plan=plan, training=False
    ) as model:
        found = model.forward(x)
        assert isinstance(found, np.ndarray)
        assert np.isfinite(found).all()
        return min(seconds(model.forward, x) for _ in range(options.rounds))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nets", nargs="*", metavar="NET", default=list(INFERENCE))
    parser.add_argument("--side", type=int, default=512, help="output voxels along an axis")
    parser.add_argument("--max-memory", default="8GiB")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="passes that are timed")
    return parser.parse_args()


if __name__ == "__main__":
    main()
