"""Training updates of znnpy beside PyTorch's on the CPU: same weights, sample and threads.

Run in an environment that has znnpy and `torch==2.13.0` (CPU build):

    python scripts/bench_peers.py --net 3x10 3x40 --threads 1 2 --json result.json
    python scripts/bench_peers.py --networks
    python scripts/bench_peers.py --layers

For each case and number of threads: loss and gradients of both are compared, PyTorch's faster
memory format is found by measurement, then both are timed in alternating pairs. A ratio is
PyTorch's time by znnpy's, so more than 1 means that znnpy is faster. A layer's update is its three
passes with bias and square loss. GFLOP/s count convolutions as if done directly. `others` is how
many cores other processes kept busy: above 0.1 the numbers are spoilt, with two threads most of
all. Exits with 1 when results differ by more than the stated tolerances.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numba
import torch
from peers.cases import NETWORKS, Case, layer_cases, network_case
from peers.contestants import FORMATS, Torch, Znnpy
from peers.timing import (
    GRADIENT_TOLERANCE,
    LOSS_TOLERANCE,
    alternate,
    difference,
    fastest,
    sgemm_rate,
)

import znnpy

HEADER = (
    f"{'case':34} {'threads':>7} {'sgemm':>6} {'znnpy ms':>9} {'GFLOP/s':>8} {'torch ms':>9} "
    f"{'GFLOP/s':>8} {'ratio':>6} "
    f"{'range':>13} {'others':>6}  torch format, largest relative difference"
)


def main() -> int:
    """Measure what the command line asks for; 1 if any results differ."""
    options = _options()
    torch.set_flush_denormal(True)
    print(_machine())
    print(f"equal means: loss within {LOSS_TOLERANCE:g}, gradients within {GRADIENT_TOLERANCE:g}")
    print(HEADER, flush=True)
    rows = []
    for case in _cases(options):
        for threads in options.threads:
            rows.append(measure(case, threads, options.pairs, options.conv))
            print(_line(rows[-1]), flush=True)
    if options.json:
        record = {"machine": _machine(), "rows": rows}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(row["equal"] for row in rows) else 1


def measure(case: Case, threads: int, pairs: int, conv: str) -> dict[str, Any]:
    """One row of the table: equality, then alternating pairs of updates."""
    torch.set_num_threads(threads)
    rate = sgemm_rate()
    ours = Znnpy(case, threads, conv)
    peers = {name: Torch(case, ours.parameters, name) for name in FORMATS}
    apart = difference(ours, peers["contiguous"])
    best = fastest(dict(peers))
    times = alternate(ours, peers[best], pairs)
    ours.close()
    return {
        "case": case.name,
        "threads": threads,
        "flops": case.flops,
        "sgemm_gflops": rate,
        "difference": asdict(apart),
        "equal": apart.within,
        "torch_format": best,
        "znnpy_seconds": times.znnpy,
        "torch_seconds": times.torch,
        "ratios": times.ratios,
        "ratio_median": times.median,
        "others_cores": times.others,
        "conv": conv,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", nargs="+", default=[], metavar="FILTERxWIDTH")
    parser.add_argument("--networks", action="store_true", help=f"all of {' '.join(NETWORKS)}")
    parser.add_argument("--layers", action="store_true", help="single layers")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--conv", choices=["auto", "direct", "fft", "spectral"], default="auto")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def _cases(options: argparse.Namespace) -> list[Case]:
    specs = list(NETWORKS) if options.networks else options.net
    if not specs and not options.layers:
        specs = ["3x10"]
    return [network_case(spec) for spec in specs] + (layer_cases() if options.layers else [])


def _machine() -> str:
    return (
        f"{_processor()}; Python {platform.python_version()}, znnpy {znnpy.__version__}, "
        f"numba {numba.__version__}, torch {torch.__version__}"
    )


def _processor() -> str:
    """The processor's name where Linux tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor()


def _line(row: dict[str, Any]) -> str:
    ours, peer = (statistics.median(row[key]) for key in ("znnpy_seconds", "torch_seconds"))
    apart = row["difference"]
    spread = f"{min(row['ratios']):.2f}-{max(row['ratios']):.2f}"
    verdict = "" if row["equal"] else "  RESULTS DIFFER"
    return (
        f"{row['case']:34} {row['threads']:7} {row['sgemm_gflops']:6.0f} {ours * 1e3:9.1f} "
        f"{row['flops'] / ours / 1e9:8.0f} {peer * 1e3:9.1f} {row['flops'] / peer / 1e9:8.0f} "
        f"{row['ratio_median']:6.2f} {spread:>13} {row['others_cores']:6.2f}  "
        f"{row['torch_format']}, {max(apart['loss'], apart['gradient']):.1e} "
        f"({apart['worst']}){verdict}"
    )


if __name__ == "__main__":
    sys.exit(main())
