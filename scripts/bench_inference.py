"""Dense prediction of a stack: `znnpy predict` beside PyTorch running the same net block by block.

    python scripts/bench_inference.py RUN --side 512 --roi 256,512,512 --max-memory 2GiB --threads 1 2

Run in an environment that has znnpy and `torch==2.13.0` (CPU build), with the run of a chain of
convolutions and max-filters such as `volumes/dense.yaml`. The stack is the sample's test image, tiled.
PyTorch gets the block size and memory format that were fastest within the same memory, measured
beforehand and not counted, and an allocator that keeps its memory: the usual one returns large
tensors to the system, and half of the time goes into touching new ones. Both then run as whole
commands, in turns, start and writing included.
Ratios are PyTorch's time by znnpy's, medians over rounds. Exits with 1 when the outputs differ.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from pydantic import ByteSize, TypeAdapter
from stopwatch import seconds

HERE = Path(__file__).parent
SAMPLE = HERE.parent / "volumes" / "fibsem" / "test-image.h5"
LEAST, MOST = 44, 200  # sides of PyTorch's blocks that are tried
FINALISTS = 2  # settings that are measured again
AGAIN = 2  # how often
# Of glibc: large tensors come from the heap, which never shrinks.
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
FORMATS = ("contiguous", "channels_last_3d")
TOLERANCE = 1e-4  # of probabilities
ZNNPY = [sys.executable, "-m", "znnpy"]


def main() -> int:
    """Measure and print one line for each number of threads; 1 if outputs differ."""
    options = _options()
    equal = True
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        stack = Path(folder) / "stack.h5"
        make_stack(stack, options.side)
        for threads in options.threads:
            row = measure(options, threads, stack, Path(folder))
            print(json.dumps(row), flush=True)
            equal &= row["largest_difference"] <= TOLERANCE
    return 0 if equal else 1


def make_stack(path: Path, side: int) -> None:
    """A cube of `side` voxels, the sample repeated along every axis."""
    with h5py.File(SAMPLE) as sample, h5py.File(path, "w") as file:
        tile = sample["stack"][...]
        repeats = [-(-side // size) for size in tile.shape]
        file["stack"] = np.tile(tile, repeats)[:side, :side, :side]


def measure(options: argparse.Namespace, threads: int, stack: Path, folder: Path) -> dict[str, Any]:
    """Choose PyTorch's setting, then run both in turns."""
    commands = {"znnpy": _znnpy(options, threads, stack, folder)}
    settings = {}
    for name in ("torch", "compiled") if options.compiled else ("torch",):
        settings[name] = best_setting(options, threads, stack, name == "compiled")
        commands[name] = _torch(options, threads, stack, folder / f"{name}.h5", settings[name])
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            (folder / f"{name}.h5").unlink(missing_ok=True)
            times[name].append(_timed(command, {} if name == "znnpy" else KEEPING))
    voxels = prod(options.roi)
    return {
        "threads": threads,
        "roi": options.roi,
        "max_memory": options.max_memory,
        "voxels_per_s": {n: voxels / statistics.median(t) for n, t in times.items()},
        "ratio": {n: _ratio(times[n], times["znnpy"]) for n in settings},
        "settings": settings,
        "largest_difference": max(_apart(folder, name) for name in settings),
        "seconds": times,
    }


def best_setting(
    options: argparse.Namespace, threads: int, stack: Path, compiled: bool
) -> dict[str, Any]:
    """The side of blocks and the memory format with most voxels/s within the memory."""
    most = TypeAdapter(ByteSize).validate_python(options.max_memory)
    settings = [
        {"side": side, "format": form, "compiled": compiled}
        for side, form in product(even_sides(options.roi), FORMATS)
    ]
    found = [_speed(options, threads, stack, setting) for setting in settings]
    fitting = [one for one in found if one["peak_bytes"] <= most]
    fitting.sort(key=lambda one: -float(one["voxels_per_s"]))
    for one in fitting[:FINALISTS]:
        again = [_speed(options, threads, stack, one)["voxels_per_s"] for _ in range(AGAIN)]
        one["voxels_per_s"] = statistics.median([one["voxels_per_s"], *again])
    return max(fitting[:FINALISTS], key=lambda one: one["voxels_per_s"])


def even_sides(roi: tuple[int, int, int]) -> list[int]:
    """Sides of cubes that share the longest axis evenly."""
    longest = max(roi)
    sides = {-(-longest // parts) for parts in range(1, longest)}
    return sorted(side for side in sides if LEAST <= side <= MOST)


def _used(options: argparse.Namespace, side: int) -> float:
    """The part of what blocks of one side compute that lies in the region."""
    blocks = prod(-(-size // side) for size in options.roi)
    return prod(options.roi) / (blocks * side**3)


def _speed(
    options: argparse.Namespace, threads: int, stack: Path, setting: dict[str, Any]
) -> dict[str, Any]:
    """A setting with its voxels/s and peak memory; of one that fails, infinite memory."""
    command = _torch(options, threads, stack, Path("-"), setting)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_env(KEEPING))
    if done.returncode:
        return {**setting, "voxels_per_s": 0.0, "peak_bytes": float("inf")}
    found = {**setting, **json.loads(done.stdout.splitlines()[-1])}
    return {**found, "voxels_per_s": found["voxels_per_s"] * _used(options, setting["side"])}


def _znnpy(options: argparse.Namespace, threads: int, stack: Path, folder: Path) -> list[str]:
    where = ["--input", f"{stack}:stack", "--output", str(folder / "znnpy.h5")]
    limits = ["--threads", str(threads), "--max-memory", options.max_memory, "--overwrite"]
    return [*ZNNPY, "predict", str(options.run), *where, "--roi", _roi(options), *limits]


def _torch(
    options: argparse.Namespace, threads: int, stack: Path, output: Path, setting: dict[str, Any]
) -> list[str]:
    side = setting["side"]
    return [
        *(sys.executable, "-m", "peers.torch_predict", str(options.run), f"{stack}:stack"),
        *(str(output), "--roi", _roi(options), "--threads", str(threads)),
        *("--patch", f"{side},{side},{side}", "--format", setting["format"]),
        *(["--compiled"] if setting["compiled"] else []),
    ]


def _roi(options: argparse.Namespace) -> str:
    return ",".join(f"0:{size}" for size in options.roi)


def _env(more: Mapping[str, str]) -> dict[str, str]:
    known = os.environ.get("PYTHONPATH", "")
    return {**os.environ, **more, "PYTHONPATH": f"{HERE}{os.pathsep}{known}"}


def _timed(command: list[str], more: Mapping[str, str]) -> float:
    environment = _env(more)

    def run() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)

    return seconds(run)


def _ratio(theirs: list[float], ours: list[float]) -> float:
    return statistics.median(b / a for a, b in zip(ours, theirs, strict=True))


def _apart(folder: Path, name: str) -> float:
    with h5py.File(folder / "znnpy.h5") as one, h5py.File(folder / f"{name}.h5") as other:
        ours, theirs = one["prediction"], other["prediction"]
        if ours.shape != theirs.shape:
            raise SystemExit(f"outputs of {ours.shape} and {theirs.shape} voxels")
        planes = range(ours.shape[1])
        return max(float(np.abs(ours[:, z] - theirs[:, z]).max()) for z in planes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="run directory of a trained net")
    parser.add_argument("--side", type=int, default=512, help="voxels of the stack along an axis")
    parser.add_argument(
        "--roi",
        type=_triple,
        default=(256, 256, 256),
        help="voxels z,y,x to predict, from the corner",
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--max-memory", default="2GiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compiled", action="store_true", help="torch.compile as well")
    parser.add_argument("--directory", type=Path, help="for the stack and the outputs")
    return parser.parse_args()


def _triple(text: str) -> tuple[int, int, int]:
    z, y, x = map(int, text.split(","))
    return z, y, x


if __name__ == "__main__":
    sys.exit(main())
