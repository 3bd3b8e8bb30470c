"""Updates by this code and by another tree of it, in turns by processes: what a change costs or brings.

    git worktree add ../before COMMIT
    python scripts/bench_before.py ../before 3x10 3x40 volumes/mnist_lenet.yaml scripts/networks/unet3d.yaml

Nets are FILTERxWIDTH (ZNN's CTMCTMCTCT) or configs that both trees have. Each tree plans and compiles for itself, in a
cache of its own, before the first round. A line a net: medians over the rounds of milliseconds by the clock and of
processor time for an update, and of the quotient within each round, with its quartiles; below all, geometric means.
Updates are two deep. Where others use the cores, processor time alone says something.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import geometric_mean, median, quantiles

HERE = Path(__file__).resolve().parent.parent
# Of names that trees have had for long, as it runs in both.
CHILD = """
import re, sys, time
from pathlib import Path
from bench_recording import run
from peers.cases import network_case
from znnpy import Model
from znnpy.config import load_config
from znnpy.infer.config_model import training_model
from znnpy.network import build_network
from znnpy.profile.recorded_updates import random_batch

net, threads, updates = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if re.fullmatch(r"\\d+x\\d+", net):
    case = network_case(net)
    model = Model(case.network, case.output_shape, threads=threads, conv="auto", loss="square")
else:
    config = load_config(Path(net), [])
    config = config.model_copy(update={"run": config.run.model_copy(update={"threads": threads})})
    model = training_model(config, build_network(config.network), None)
batch = random_batch(model)
run(model, batch, updates)
print("ready", flush=True)
for _ in sys.stdin:
    clock, processor = time.perf_counter(), time.process_time()
    run(model, batch, updates)
    print(time.perf_counter() - clock, time.process_time() - processor, flush=True)
"""


class Tree:
    """A process that makes updates of a net by the code of a tree, when it is asked."""

    def __init__(
        self, root: Path, cache: Path | None, net: str, chosen: argparse.Namespace
    ) -> None:
        paths = [str(root / part) for part in ("", "kernels", "scripts")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        if cache is not None:
            environment["ZNNPY_CACHE"] = str(cache)
        words = [sys.executable, "-c", CHILD, net, str(chosen.threads), str(chosen.updates)]
        self._updates = chosen.updates
        self._process = subprocess.Popen(
            words,
            cwd=root,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args!r} has ended")
        return line

    def seconds(self) -> list[float]:
        """Of an update by the clock and of the processor."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return [float(word) / self._updates for word in self._answer().split()]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Measure the nets of the command line, one line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="the other tree")
    parser.add_argument("nets", nargs="+", metavar="NET")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--updates", type=int, default=10, help="of each tree a round")
    parser.add_argument("--cache", type=Path, help="of the other tree (default: .cache in it)")
    chosen = parser.parse_args()
    print("net | before, ms | now, ms | now by before | processor ms | now | now by before")
    found = [of_net(net, chosen) for net in chosen.nets]
    means = [geometric_mean(column) for column in zip(*found, strict=True)]
    print(f"geometric mean | | | {means[0]:.3f} | | | {means[1]:.3f}")


def of_net(net: str, chosen: argparse.Namespace) -> list[float]:
    """Print a net's line; return by what its time and processor time were multiplied."""
    before = chosen.before.resolve()
    with ExitStack() as open_:
        trees = []
        for root, cache in ((before, chosen.cache or before / ".cache"), (HERE, None)):
            trees.append(Tree(root, cache, net, chosen))
            open_.callback(trees[-1].close)
        rounds = [[tree.seconds() for tree in trees] for _ in range(chosen.rounds)]
    clock, processor = ([[tree[of] for tree in each] for each in rounds] for of in (0, 1))
    print(net, *columns(clock), *columns(processor), sep=" | ", flush=True)
    return [median(now / old for old, now in each) for each in (clock, processor)]


def columns(rounds: Sequence[Sequence[float]]) -> list[str]:
    """Medians of both trees, and of the quotient, with its quartiles."""
    medians = [f"{1e3 * median(column):.3g}" for column in zip(*rounds, strict=True)]
    by = [now / old for old, now in rounds]
    low, middle, high = quantiles(by, n=4, method="inclusive")
    return [*medians, f"{middle:.3f} ({low:.3f} to {high:.3f})"]


if __name__ == "__main__":
    main()
