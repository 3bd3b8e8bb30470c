"""znnpy beside PyTorch on the CPU: same weights, sample and threads, updates or forward passes.

Run in an environment that has znnpy and `torch==2.13.0` (CPU build); compiling needs g++:

    python scripts/bench_peers.py --net 3x10 3x40 --threads 1 2 --json result.json
    python scripts/bench_peers.py --networks --layers --inference --markdown tables.md
    python scripts/bench_peers.py --unets --threads 1 2          # see peers/unet_bench.py
    python scripts/bench_peers.py --images --threads 1 2         # LeNet, cifar10_quick
    python scripts/bench_peers.py --shapes --threads 2           # rows of peers/shapes.py: flat, few ...

For each case and number of threads, each contestant in a process of its own: results of all are compared (loss and
gradients; outputs of inference), PyTorch's faster memory format is found by measurement, then znnpy, eager PyTorch and
compiled PyTorch (torch.compile, the max-filter taken axis by axis, weights frozen for inference) are
timed in turns. A ratio is PyTorch's time by znnpy's, so more than 1 means that znnpy is faster; it is
the median over rounds. A layer's update is its three passes with bias and square loss. GFLOP/s count
convolutions as if done directly. `others` is how many cores other processes kept busy: above 0.1 the
numbers are spoilt, with two threads most of all. Exits with 1 when results differ by more than the
stated tolerances. `--unets` compares everyone with PyTorch in float64 (convolutions tap by tap: its own
take many minutes): peers may be inexact, znnpy where PyTorch is in one of its formats, and at most twice as far. With
`--smooth` it compares the nets' smooth twins, SiLU for relus and the mean of a window for its maximum, where
rounding is all that may differ: to see only that, `--unets --smooth --what update --threads 1 --rounds 1 --eager`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import numba
import torch
from peers import shape_bench, unet_bench
from peers.case_worker import Remote, peer_formats, remote
from peers.cases import (
    INFERENCE,
    INFERENCE_OUTPUT,
    NETWORKS,
    RECIPES,
    Case,
    image_case,
    inference_case,
    layer_cases,
    network_case,
)
from peers.contestants import FORMATS
from peers.shapes import SHAPES
from peers.timing import (
    GRADIENT_TOLERANCE,
    LOSS_TOLERANCE,
    alternate,
    difference,
    fastest,
    sgemm_rate,
)

import znnpy
from znnpy.plan import Choice

COLUMNS = (
    ("case", "{case}"),
    ("threads", "{threads}"),
    ("sgemm GFLOP/s", "{sgemm_gflops:.0f}"),
    ("znnpy ms", "{znnpy_ms:.1f}"),
    ("GFLOP/s", "{gflops:.0f}"),
    ("torch ms", "{torch_ms:.1f}"),
    ("ratio", "{ratio:.2f}"),
    ("range", "{low:.2f}-{high:.2f}"),
    ("compiled ms", "{compiled_ms:.1f}"),
    ("ratio", "{compiled_ratio:.2f}"),
    ("others", "{others_cores:.2f}"),
    ("torch format", "{torch_format}"),
    ("largest difference", "{largest:.1e}{verdict}"),
)


def main() -> int:
    """Measure what the command line asks for; 1 if any results differ."""
    options = _options()
    torch.set_flush_denormal(True)
    print(_machine())
    if options.unets is not None:
        return _tables(options, unet_bench)
    if options.shapes is not None:
        return _tables(options, shape_bench)
    print(f"equal means: loss within {LOSS_TOLERANCE:g}, gradients within {GRADIENT_TOLERANCE:g}")
    print(" | ".join(title for title, _ in COLUMNS), flush=True)
    rows = []
    for case in _cases(options):
        for threads in options.threads:
            rows.append(measure(case, threads, options))
            print(" | ".join(_cells(rows[-1])), flush=True)
    if options.json:
        record = {"machine": _machine(), "rows": rows}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(_markdown(rows))
    return 0 if all(row["equal"] for row in rows) else 1


def measure(case: Case, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """One row of the table: equality, then all in turns."""
    torch.set_num_threads(threads)
    rate = sgemm_rate()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        begun = partial(remote, case, threads, folder)
        ours = stack.enter_context(begun("znnpy", "--conv", options.conv))
        best = options.format or _faster(case, begun)
        # Begun anew, as results are compared before any update.
        names = ["torch", "compiled"] if options.compiled else ["torch"]
        peers = {name: stack.enter_context(begun(name, "--format", best)) for name in names}
        apart = [difference(ours, peer) for peer in peers.values()]
        rounds = alternate({"znnpy": ours, **peers}, options.rounds)
    return {
        "case": case.name,
        "threads": threads,
        "flops": case.flops,
        "sgemm_gflops": rate,
        "differences": [asdict(one) for one in apart],
        "equal": all(one.within for one in apart),
        "torch_format": best,
        "seconds": rounds.seconds,
        "ratios": {peer: rounds.ratios(peer) for peer in peers},
        "others_cores": rounds.others,
        "conv": options.conv,
    }


def _faster(case: Case, begun: Callable[..., AbstractContextManager[Remote]]) -> str:
    """PyTorch's memory format that is faster here, eager."""
    with ExitStack() as stack:
        peers = {
            name: stack.enter_context(begun("torch", "--format", name))
            for name in peer_formats(case)
        }
        return fastest(peers)


def _tables(options: argparse.Namespace, benchmark: ModuleType) -> int:
    """What a benchmark with a table of its own finds."""
    rows = benchmark.bench(options)
    if options.json:
        options.json.write_text(json.dumps({"machine": _machine(), "rows": rows}, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(f"{_machine()}\n\n{benchmark.markdown(rows)}")
    return 0 if all(row["equal"] for row in rows) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", nargs="+", default=[], metavar="FILTERxWIDTH")
    parser.add_argument("--networks", action="store_true", help=f"all of {' '.join(NETWORKS)}")
    parser.add_argument("--layers", action="store_true", help="single layers")
    parser.add_argument(
        "--inference",
        nargs="*",
        choices=list(INFERENCE),
        help="dense forward passes of ZNNi's networks (default: n337 n537 n726)",
    )
    parser.add_argument(
        "--unets",
        nargs="*",
        choices=list(unet_bench.NETS),
        help="U-Nets, each contestant in a process of its own (default: all)",
    )
    parser.add_argument(
        "--images", nargs="*", choices=list(RECIPES), help="classification (default: all)"
    )
    parser.add_argument(
        "--shapes",
        nargs="*",
        choices=list(SHAPES),
        help="three equal layers with bias and relu, and U-Nets of flat filters (default: all)",
    )
    parser.add_argument("--batch", type=int, help="of --images (default: the recipe's)")
    parser.add_argument("--what", choices=["update", "inference", "both"], default="both")
    parser.add_argument(
        "--small", action="store_true", help="small inputs of --unets, to compare results"
    )
    parser.add_argument(
        "--smooth",
        action="store_true",
        help="smooth twins of --unets: results are equal but for rounding",
    )
    parser.add_argument(
        "--engines",
        nargs="*",
        choices=unet_bench.ENGINES,
        default=unet_bench.ENGINES,
        help="runtimes beside PyTorch in the inference of --unets and --shapes",
    )
    parser.add_argument("--patch", type=int, help="side of the output of --inference (default: 16)")
    parser.add_argument("--only", metavar="TEXT", help="only cases with this in their names")
    parser.add_argument(
        "--format", choices=[*FORMATS, "channels_last"], help="PyTorch's, instead of its faster"
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--conv", choices=get_args(Choice), default="auto")
    parser.add_argument(
        "--eager", dest="compiled", action="store_false", help="leave torch.compile out"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    return parser.parse_args()


def _cases(options: argparse.Namespace) -> list[Case]:
    specs = list(NETWORKS) if options.networks else options.net
    found = [network_case(spec) for spec in specs] + (layer_cases() if options.layers else [])
    if options.inference is not None:
        names = options.inference or ["n337", "n537", "n726"]
        shape = INFERENCE_OUTPUT if options.patch is None else (options.patch,) * 3
        found += [inference_case(name, shape) for name in names]
    if options.images is not None:
        names = options.images or list(RECIPES)
        found += [image_case(name, options.batch) for name in names]
    found = found or [network_case("3x10")]
    return [case for case in found if (options.only or "") in case.name]


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


def _cells(row: dict[str, Any]) -> list[str]:
    median = {name: statistics.median(values) for name, values in row["seconds"].items()}
    ratios, none = row["ratios"], float("nan")
    values = {
        **row,
        "znnpy_ms": median["znnpy"] * 1e3,
        "gflops": row["flops"] / median["znnpy"] / 1e9,
        "torch_ms": median["torch"] * 1e3,
        "ratio": statistics.median(ratios["torch"]),
        "low": min(ratios["torch"]),
        "high": max(ratios["torch"]),
        "compiled_ms": median.get("compiled", none) * 1e3,
        "compiled_ratio": statistics.median(ratios.get("compiled", [none])),
        "largest": max(max(one["loss"], one["gradient"]) for one in row["differences"]),
        "verdict": "" if row["equal"] else " RESULTS DIFFER",
    }
    return [form.format(**values) for _, form in COLUMNS]


def _markdown(rows: list[dict[str, Any]]) -> str:
    """The table, after a line that names machine and versions."""
    lines = [[title for title, _ in COLUMNS], ["---"] * len(COLUMNS), *map(_cells, rows)]
    return f"{_machine()}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
