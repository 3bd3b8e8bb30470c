"""Seconds from `znnpy train` to the first update: with an empty cache of kernels and wisdom, then again.

    python scripts/bench_start.py
    python scripts/bench_start.py --net 3x40 --starts 6

The volumes of `volumes/fibsem.yaml` serve all networks. An empty cache takes the compilation of all kernels
and the measuring of `conv: auto` as well; a warm start finds both there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

FIBSEM = Path(__file__).parent.parent / "volumes" / "fibsem.yaml"


def main() -> None:
    """Measure the networks of the command line, one line each."""
    options = _options()
    print("network | cold s | warm s", flush=True)
    for net in options.net:
        with tempfile.TemporaryDirectory() as folder:
            cache = options.cache or Path(folder) / "cache"
            cold, *warm = (
                start(net, Path(folder) / str(run), cache) for run in range(options.starts)
            )
        words = f"{median(warm):.2f} ({min(warm):.2f}-{max(warm):.2f})" if warm else "-"
        print(f"{net} | {cold:.1f} | {words}", flush=True)


def start(net: str, directory: Path, cache: Path) -> float:
    """Seconds until the record of the first update stands in the log of a new run."""
    settings = {"training.iterations": 1, "run.directory": directory}
    if net != "fibsem":
        settings |= {"network.layers": layers(net), "training.output_shape": 12}
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    environment = os.environ | {"ZNNPY_CACHE": str(cache)}
    command = [sys.executable, "-m", "znnpy", "train", str(FIBSEM), *options]
    begin = time.time()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return (directory / "log.jsonl").stat().st_mtime - begin


def layers(net: str) -> str:
    """CTMCTMCTCT with n^3 filters and w images, as YAML on one line; `net` is `nxw`."""
    size, images = net.split("x")
    words = [f"{{conv: {{images: {images}, size: {size}, function: relu}}}}", "{max_filter: 2}"]
    last = f"{{conv: {{images: 1, size: {size}}}}}"
    return f"[{', '.join((*words, *words, words[0], last))}]"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", nargs="+", default=["fibsem", "3x40"], metavar="fibsem|NxW")
    parser.add_argument("--starts", type=int, default=4, help="the first is cold (default: 4)")
    parser.add_argument("--cache", type=Path, help="where kernels are and stay (default: nowhere)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
