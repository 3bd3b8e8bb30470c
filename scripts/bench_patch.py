"""The patch that the search chooses beside all others: `python scripts/bench_patch.py [net ...]`.

Every patch that is tried is computed as `predict` does, staging and probabilities included, in turns; the
time of the region is that of a run by the number of runs. Times are CPU seconds of the process on one
worker, which other processes hardly disturb, and of several looks the least counts. `loses` is the chosen
patch's time by that of the fastest: 1.1 is the most that it should be. `smallest` is what the smallest takes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.config import load_config
from znnpy.data.scene import Scene
from znnpy.data.values.normalization import Normalisation
from znnpy.data.volume import ArrayVolume, Triple
from znnpy.engine.model import Model
from znnpy.infer.blocks import Region, whole_field
from znnpy.infer.grid import Grid
from znnpy.infer.parallel import parts_of
from znnpy.infer.patch_search import Candidate, best_patch, candidates
from znnpy.infer.predict import Finish, VolumePrediction
from znnpy.learning.readings import LOGITS
from znnpy.network import Network, build_network, load_network
from znnpy.plan import Choice

DENSE = Path(__file__).parent.parent / "volumes" / "dense.yaml"
LONGEST = 0.02  # seconds of a look at one patch, beyond its first run
Layers = list[dict[str, Any]]


def conv(images: int, size: int | list[int], function: str = "relu") -> dict[str, Any]:
    """A layer of a net."""
    return {"conv": {"channels": images, "size": size, "function": function}}


POOL, FLAT = {"max_filter": 2}, {"max_filter": [1, 2, 2]}
NETS: dict[str, tuple[Layers | None, Choice, Triple]] = {
    "dense": (None, "direct", (48, 48, 48)),
    "dense auto": (None, "auto", (48, 48, 48)),
    "two layers": ([conv(16, 3), conv(1, 3, "linear")], "auto", (64, 64, 64)),
    "last of 1": ([conv(32, 5), conv(2, 1, "linear")], "direct", (64, 64, 64)),
    "all of 1": ([conv(8, 1), conv(1, 1, "linear")], "auto", (64, 64, 64)),
    "planes": (
        [conv(16, [1, 5, 5]), FLAT, conv(16, [1, 5, 5]), conv(1, 1, "linear")],
        "direct",
        (8, 160, 160),
    ),
    "pools": ([conv(10, 3), POOL, conv(10, 3), POOL, conv(2, 3, "linear")], "auto", (64, 64, 64)),
    "thin": ([conv(10, 3), POOL, conv(10, 3), conv(2, 3, "linear")], "direct", (3, 160, 160)),
}


def main() -> None:
    """Measure what the command line asks for, a line for each net."""
    options = _options()
    print(
        "| net, conv, region | patches | chosen | runs | ms | fastest | ms | loses | smallest s |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.nets:
        print(line(name, options), flush=True)


def line(name: str, options: argparse.Namespace) -> str:
    """One line of the table."""
    layers, choice, shape = NETS[name]
    network = network_of(layers)
    region, limit = Region((0, 0, 0), shape), options.memory << 20
    chosen = best_patch(network, region, choice, lambda c: c.bytes(1), limit)
    found = [c for c in distinct(network, region, choice) if c.bytes(1) <= limit]
    with ExitStack() as stack:
        runs = [stack.enter_context(runner(c, region)) for c in found]
        looks = [[timed(run) for run in runs] for _ in range(options.rounds)]
    counts = [Grid(c.patch).count(region) for c in found]
    seconds = [n * min(each) for n, each in zip(counts, zip(*looks, strict=True), strict=True)]
    place, best = _place(chosen, found), seconds.index(min(seconds))
    cells = [f"{name}, {choice}, {_size(shape)}", str(len(found))]
    cells += [_size(chosen.patch), str(counts[place]), f"{seconds[place] * 1e3:.1f}"]
    cells += [_size(found[best].patch), f"{seconds[best] * 1e3:.1f}"]
    loses = f"{seconds[place] / seconds[best]:.2f}"
    return f"| {' | '.join([*cells, loses, f'{seconds[0]:.1f}'])} |"


def network_of(layers: Layers | None) -> Network:
    """The net of some layers; of `volumes/dense.yaml` for none."""
    if layers is None:
        return build_network(load_config(DENSE).network)
    return load_network({"input": 1, "layers": layers})


def distinct(network: Network, region: Region, choice: Choice) -> list[Candidate]:
    """Candidates, each patch and plan once."""
    made = {(c.patch, _methods(c)): c for c in candidates(network, region, choice)}
    return list(made.values())


@contextmanager
def runner(candidate: Candidate, region: Region) -> Iterator[Any]:
    """A call that computes one patch, and has done so once."""
    raw = np.random.default_rng(0).integers(0, 255, (1, *region.shape)).astype(np.uint8)
    scene = Scene({"input": ArrayVolume(raw, "random")}, {})
    field = whole_field(candidate.network, scene.images, {"input": (0, 0, 0)}, True)
    one = np.ones(1, np.float32)
    plan = candidate.plan.to_record()
    with (
        Model(
            candidate.network,
            output_shape=candidate.patch,
            threads=1,
            training=False,
            plan=plan,
        ) as model,
        parts_of(1) as parts,
    ):
        prediction = VolumePrediction(
            model,
            scene,
            field,
            {"input": Normalisation(one, one)},
            Finish(LOGITS),
            parts=parts,
        )
        given = prediction.read(Region((0, 0, 0), candidate.patch))
        prediction.compute(given)
        yield lambda: prediction.compute(given)


def timed(run: Any) -> float:
    """CPU seconds of one run, of as many as fit."""
    start, count = time.process_time(), 0
    while count == 0 or time.process_time() - start < LONGEST:
        run()
        count += 1
    return (time.process_time() - start) / count


def _methods(candidate: Candidate) -> tuple[str, ...]:
    return tuple(str(layer.method("forward")) for layer in candidate.plan.layers.values())


def _place(chosen: Candidate, found: list[Candidate]) -> int:
    wanted = chosen.patch, _methods(chosen)
    return [(c.patch, _methods(c)) for c in found].index(wanted)


def _size(shape: Triple) -> str:
    return " x ".join(map(str, shape))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nets", nargs="*", default=list(NETS), metavar="NET")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", type=int, default=1024, help="MiB (default: 1024)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
