"""Layers of many shapes side by side: updates beside PyTorch, forward passes beside ONNX Runtime and OpenVINO, too.

Times are the least of the rounds, which others at work on the machine disturb least; ratios are of these.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from peers.cases import Case
from peers.contestants import FLAT_FORMATS, FORMATS, Torch
from peers.engines import ENGINES, EXACT, engines
from peers.ours import Contestant, Znnpy
from peers.shapes import LAYERS, SHAPES
from peers.timing import (
    GRADIENT_TOLERANCE,
    LOSS_TOLERANCE,
    alternate,
    difference,
    fastest,
)

PEERS = ("torch", *ENGINES)
WORDS = ("row", "layers", "what", "ms", "GFLOP/s", *PEERS, "others", "largest difference")
NET_TOLERANCE = 2e-2
"""Of each gradient of a U-Net: rounding decides some of its millions of relus and maxima (docs/performance.md)."""
APART = 0.1  # from znnpy, beyond which what computes in bfloat16 computes something else


def bench(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A line for each pass of each size, printed as it comes, and a mean for each row of the table."""
    print(" | ".join(WORDS), flush=True)
    rows: list[dict[str, Any]] = []
    for name in options.shapes or SHAPES:
        found = []
        for case in _cases(name, options):
            for threads in options.threads:
                found.append({"row": name, **_measured(case, threads, options)})
                print(" | ".join(_cells(found[-1])), flush=True)
        for row in _means(name, found):
            print(" | ".join(row), flush=True)
        rows += found
    return rows


def _cases(name: str, options: argparse.Namespace) -> Iterator[Case]:
    for layers in SHAPES[name]:
        if (options.only or "") in layers.name:
            for training in (True, False):
                if options.what in ("both", "update" if training else "inference"):
                    yield layers.case(training=training)


def _measured(case: Case, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """All in turns, once their results are compared."""
    torch.set_num_threads(threads)
    ours = Znnpy(case, threads, options.conv)
    formats = FLAT_FORMATS if case.flat else FORMATS
    best = fastest({name: Torch(case, ours.parameters, name) for name in formats})
    peers: dict[str, Contestant] = {"torch": Torch(case, ours.parameters, best)}
    with tempfile.TemporaryDirectory() as folder:
        if not case.training:
            names = list(options.engines)
            peers |= engines(case, ours.parameters, names, threads, Path(folder))
        apart = {name: difference(ours, peer) for name, peer in peers.items()}
        rounds = alternate({"znnpy": ours, **peers}, options.rounds)
    ours.close()
    most = (
        NET_TOLERANCE if len(case.network.edges) > LAYERS and case.training else GRADIENT_TOLERANCE
    )
    exact = {name: one for name, one in apart.items() if name in ("torch", *EXACT)}
    return {
        "layers": case.name,
        "what": "update" if case.training else "forward",
        "threads": threads,
        "flops": case.flops,
        "plan": {str(name): _plan(layer) for name, layer in ours.model.plan.layers.items()},
        "seconds": rounds.seconds,
        "ratios": {
            name: min(rounds.seconds[name]) / min(rounds.seconds["znnpy"]) for name in peers
        },
        "others_cores": rounds.others,
        "difference": max(max(one.loss, one.gradient) for one in exact.values()),
        "equal": all(one.loss <= LOSS_TOLERANCE and one.gradient <= most for one in exact.values())
        and all(one.gradient <= APART for one in apart.values()),
        "torch_format": best,
    }


def _plan(layer: Any) -> str:
    return " ".join(str(layer.method(which)) for which in ("forward", "gradient", "weight"))


def _cells(row: dict[str, Any]) -> list[str]:
    own = min(row["seconds"]["znnpy"])
    return [
        row["row"],
        row["layers"],
        f"{row['what']} {row['threads']}",
        f"{own * 1e3:.2f}",
        f"{row['flops'] / own / 1e9:.0f}",
        *(f"{row['ratios'][name]:.2f}" if name in row["ratios"] else "-" for name in PEERS),
        f"{row['others_cores']:.2f}",
        f"{row['difference']:.1e}{'' if row['equal'] else ' RESULTS DIFFER'}",
    ]


def _means(name: str, rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Geometric means over sizes, by pass and number of threads."""
    for kind in dict.fromkeys((row["what"], row["threads"]) for row in rows):
        own = [row for row in rows if (row["what"], row["threads"]) == kind]
        ratios = {
            peer: [row["ratios"][peer] for row in own if peer in row["ratios"]] for peer in PEERS
        }
        means = (f"{statistics.geometric_mean(it):.2f}" if it else "-" for it in ratios.values())
        yield [name, "geometric mean", f"{kind[0]} {kind[1]}", "", "", *means, "", ""]


def markdown(rows: list[dict[str, Any]]) -> str:
    """The rows as a table, with a line of means behind each row of shapes."""
    lines = [list(WORDS), ["---"] * len(WORDS)]
    for name in dict.fromkeys(row["row"] for row in rows):
        own = [row for row in rows if row["row"] == name]
        lines += [*map(_cells, own), *_means(name, own)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
