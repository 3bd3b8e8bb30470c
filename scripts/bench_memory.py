"""Peak memory of `znnpy predict` beside `--max-memory`, over a stack of the sample's test image, tiled.

    python scripts/bench_memory.py RUN --side 512 --limits 1GiB 2GiB 4GiB --threads 2

Prints a table's rows: limit, patch, the peak as planned, the peak that the system counted for the process
(resident, shared pages included), voxels/s of the whole command. Exits with 1 when a peak is above its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_inference import ZNNPY, make_stack
from pydantic import ByteSize, TypeAdapter

MEBI = 1 << 20


def main() -> int:
    """Predict once for each limit; 1 if any was passed."""
    options, kept = _options(), True
    print("| limit | patch | planned MiB | peak MiB | voxels/s |", "| --- " * 5 + "|", sep="\n")
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        stack = Path(folder) / "stack.h5"
        make_stack(stack, options.side)
        for limit in options.limits:
            most = TypeAdapter(ByteSize).validate_python(limit)
            row = measured(options, stack, limit)
            print(f"| {limit} | {' | '.join(row['words'])} |", flush=True)
            kept &= row["peak"] <= most
    return 0 if kept else 1


def measured(options: argparse.Namespace, stack: Path, limit: str) -> dict[str, Any]:
    """One prediction of the whole stack in a process of its own."""
    output = stack.with_name("prediction.h5")
    where = ["--input", f"{stack}:stack", "--output", str(output), "--overwrite"]
    limits = ["--max-memory", limit, "--threads", str(options.threads)]
    command = [*ZNNPY, "predict", str(options.run), *where, *limits]
    planned = _planned([*command, "--dry-run"])
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"{limit}: the prediction ended with {os.waitstatus_to_exitcode(status)}")
    log = output.with_name(f"{output.name}.log.jsonl")
    events = map(json.loads, log.read_text().splitlines())
    patch = [" x ".join(map(str, one["patch"])) for one in events if one["event"] == "start"][-1]
    peak = usage.ru_maxrss * 1024
    words = (patch, planned, f"{peak / MEBI:.0f}", f"{options.side**3 / seconds:,.0f}")
    return {"peak": peak, "words": words}


def _planned(command: list[str]) -> str:
    """The dry run's word for the memory, in MiB."""
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    number, unit = next(line for line in lines if line.startswith("memory")).split()[1:3]
    return f"{float(number) * (1024 if unit == 'GiB' else 1):.0f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="run directory of a trained net")
    parser.add_argument("--side", type=int, default=512, help="voxels of the stack along an axis")
    parser.add_argument("--limits", nargs="+", default=["1GiB", "2GiB", "4GiB"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--directory", type=Path, help="for the stack and the output")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
