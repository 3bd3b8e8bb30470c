"""Seconds from `znnpy train` to the first update: with an empty cache of kernels and wisdom, then again.

    python scripts/bench_start.py
    python scripts/bench_start.py --net 3x40 --starts 6

The volumes of `volumes/dense.yaml` serve all networks. An empty cache takes the compilation of all kernels
and the measuring of `conv: auto` as well; a warm start finds both there. What that takes more is given in
seconds of processor time too (user time of all processes, cold less warm), which others at work disturb less.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

DENSE = Path(__file__).parent.parent / "volumes" / "dense.yaml"


def main() -> None:
    """Measure the networks of the command line, one line each."""
    options = _options()
    print("network | cold s | warm s | processor s of a cold start", flush=True)
    for net in options.net:
        with tempfile.TemporaryDirectory() as folder:
            cache = options.cache or Path(folder) / "cache"
            cold, *warm = (
                start(net, Path(folder) / str(run), cache) for run in range(options.starts)
            )
        seconds = [each for each, _ in warm]
        words = f"{median(seconds):.2f} ({min(seconds):.2f}-{max(seconds):.2f})" if warm else "-"
        busy = f"{cold[1] - median(used for _, used in warm):.0f}" if warm else "-"
        print(f"{net} | {cold[0]:.1f} | {words} | {busy}", flush=True)


def start(net: str, directory: Path, cache: Path) -> tuple[float, float]:
    """Seconds until the record of the first update stands in the log; user time of the whole run."""
    settings = {"training.iterations": 1, "run.directory": directory}
    if net != "dense":
        settings |= {"network.layers": layers(net), "training.output_shape": 12}
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    environment = os.environ | {"ZNNPY_CACHE": str(cache)}
    command = [sys.executable, "-m", "znnpy", "train", str(DENSE), *options]
    begin, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return (directory / "log.jsonl").stat().st_mtime - begin, used


def layers(net: str) -> str:
    """CTMCTMCTCT with n^3 filters and w images, as YAML on one line; `net` is `nxw`."""
    size, images = net.split("x")
    words = [f"{{conv: {{channels: {images}, size: {size}, function: relu}}}}", "{max_filter: 2}"]
    last = f"{{conv: {{channels: 1, size: {size}}}}}"
    return f"[{', '.join((*words, *words, words[0], last))}]"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", nargs="+", default=["dense", "3x40"], metavar="dense|NxW")
    parser.add_argument("--starts", type=int, default=4, help="the first is cold (default: 4)")
    parser.add_argument("--cache", type=Path, help="where kernels are and stay (default: nowhere)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
