"""Average precision of membranes over seconds of training: znnpy, PyTorch (same net, same recipe), a random forest.

    pip install scikit-learn torch
    python scripts/bench_quality.py --seconds 20 60 120 --seeds 0 1 2 --json result.json --picture quality.png
    znnpy init own.yaml --for membranes --data t.h5:raw --labels t.h5:labels
    python scripts/bench_quality.py --recipe own.yaml --train t.h5:raw t.h5:labels --held v.h5:raw v.h5:labels
    python scripts/bench_quality.py --rates 40 --recipe own.yaml --train t.h5:raw t.h5:labels

Each point is a training of its own, whose schedule ends there: znnpy makes as many updates as fit into these seconds
by the speed of a few first ones, PyTorch as many as it can. Both begin with the same weights and draw the same patches,
and both are scored by znnpy. The forest (`peers/forest.py`) has one point. Seconds are those of training, without
compiling and scoring, on `--threads`. By default the shipped sample: its training volume up to slice 38, scored on the
slices behind; `--held` with a test volume is for the end alone, when nothing is chosen any more.

`--updates N` trains so many updates instead, whatever the time: on a machine that others use, by the numbers that fit
into some seconds of a free one.

`--rates N` trains nothing: it makes the first N updates of the recipe by both, with the same first weights, patches and
learning rates, and prints how far apart their losses are, and how many updates each makes a second (the median).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from peers import same_updates
from peers.forest import Forest
from peers.torch_training import trained

from znnpy.config import load_config
from znnpy.config.models import Config
from znnpy.data.config_volumes import open_scene
from znnpy.evaluation.volume import evaluate, observe
from znnpy.infer.config_model import Weights
from znnpy.metrics import average_precision
from znnpy.network import trained_network
from znnpy.train.progress import Quiet
from znnpy.train.session import train

ROOT = Path(__file__).parent.parent
SAMPLE = [f"{ROOT}/volumes/fibsem/train-{name}.h5:stack" for name in ("image", "gt.lzf")]
TRIED = 60  # updates by which the speed is found


@dataclass(frozen=True)
class Point:
    """One training: who, its seed, updates and seconds of it, and how good it is on the volume held back."""

    who: str
    seed: int
    updates: int
    seconds: float
    average_precision: float
    voi: float | None = None


def main() -> None:
    """Train and score what the command line asks for; a line each."""
    options = _options()
    torch.set_num_threads(options.threads)
    if options.rates:
        config = config_of(options, options.seeds[0], "data.test=[]")
        own = same_updates.ours(config, options.rates)
        print(same_updates.table(own, same_updates.theirs(config, options.rates)))
        return
    points = list[Point]()
    for point in _points(options):
        points.append(point)
        print(json.dumps(asdict(point)), flush=True)
    print(table(points))
    if options.json:
        options.json.write_text(json.dumps([asdict(point) for point in points], indent=2) + "\n")
    if options.picture:
        draw(points, options.picture)


def _points(options: argparse.Namespace) -> Iterator[Point]:
    for seed in options.seeds:
        if "forest" in options.who:
            yield forest(config_of(options, seed), seed, options.threads)
        for updates in options.updates or ():
            yield from _both(options, seed, 0.0, updates)
        for seconds in () if options.updates else options.seconds:
            yield from _both(options, seed, seconds, None)


def _both(
    options: argparse.Namespace, seed: int, seconds: float, updates: int | None
) -> Iterator[Point]:
    if "znnpy" in options.who:
        yield ours(options, seed, seconds, updates)
    if "torch" in options.who:
        own = () if updates is None else _length(updates)
        yield theirs(config_of(options, seed, *own), seed, seconds, updates)


def _length(updates: int) -> tuple[str, ...]:
    warmup = max(1, updates // 40)
    return f"training.iterations={updates}", f"training.schedule.warmup={warmup}"


def config_of(options: argparse.Namespace, seed: int, *settings: str) -> Config:
    """The recipe for the volumes of the command line."""
    (image, labels), (held, truth) = options.train, options.held
    parts = (
        ("", "") if options.held != options.train else (", slices: [0, 38]", ", slices: [38, 50]")
    )
    return load_config(
        options.recipe,
        [
            f'data.train=[{{image: "{image}", labels: "{labels}"{parts[0]}}}]',
            f'data.test=[{{image: "{held}", labels: "{truth}"{parts[1]}}}]',
            "data.validation=[]",
            f"training.seed={seed}",
            f"run.threads={options.threads}",
            "run.checkpoint.every=1000000",
            *options.set,
            *settings,
        ],
    )


def ours(options: argparse.Namespace, seed: int, seconds: float, updates: int | None) -> Point:
    """znnpy, with a schedule of so many updates, or of as many as fit."""
    with tempfile.TemporaryDirectory() as folder:
        if updates is None:
            tried = config_of(
                options,
                seed,
                f"run.directory={folder}/a",
                f"training.iterations={TRIED}",
                "data.test=[]",
            )
            train(tried, reporter=Quiet())
            updates = max(20, round(seconds / (_spent(Path(folder) / "a") / TRIED)))
        config = config_of(options, seed, f"run.directory={folder}/b", *_length(updates))
        (found,) = train(config, reporter=Quiet()).evaluations
        scores = found.scores["network"]
        return Point(
            "znnpy", seed, updates, _spent(Path(folder) / "b"), scores.average_precision, scores.voi
        )


def _spent(run: Path) -> float:
    """Seconds that the updates of a run took, by its log of the clock."""
    lines = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    return max(float(line["seconds"]) for line in lines if "seconds" in line)


def theirs(config: Config, seed: int, seconds: float, count: int | None) -> Point:
    """PyTorch, for as long or as many updates; its weights are scored by znnpy."""
    network = trained_network(config)
    weights, updates, spent = trained(config, network, seconds, count)
    with ExitStack() as stack:
        scene = open_scene(config.data.test[0], config.data, network)  # type: ignore[index]
        stack.callback(scene.close)
        (found,) = evaluate(Weights(config, network, None, weights), scene)
    scores = found.scores["network"]
    return Point("PyTorch", seed, updates, spent, scores.average_precision, scores.voi)


def forest(config: Config, seed: int, threads: int) -> Point:
    """The forest, features included."""
    network = trained_network(config)
    known = []
    for section in (config.data.train[0], config.data.test[0]):  # type: ignore[index]
        scene = open_scene(section, config.data, network)
        unread = Weights(config, network, None, {})
        known.append(observe(unread, scene, predicted=False).known[network.outputs[0].name])
        scene.close()
    before, now = known
    begun = time.monotonic()
    trees = Forest(before.raw, before.target[0], before.weight[0], seed, threads)
    spent = time.monotonic() - begun
    found = trees.predict(now.raw)
    return Point("forest", seed, 0, spent, average_precision(found, now.target[0], now.weight[0]))


def rounds(points: Sequence[Point]) -> list[list[Point]]:
    """Trainings of one kind and of as many updates, or about as long, seed by seed; the shortest first."""
    found: dict[tuple[str, float], list[Point]] = {}
    counts = Counter((point.who, point.updates) for point in points)
    for point in points:
        same = counts[point.who, point.updates] == len({it.seed for it in points})
        length = point.updates if same else round(point.seconds, -1)
        found.setdefault((point.who, length), []).append(point)
    return [found[key] for key in sorted(found)]


def table(points: Sequence[Point]) -> str:
    """Scores as a table in Markdown, a line for each round of seeds."""
    lines = [
        "| | seeds | seconds of training | updates | average precision | mean |",
        "|---" * 6 + "|",
    ]
    for group in rounds(points):
        seeds = ", ".join(str(it.seed) for it in group)
        scores = [it.average_precision for it in group]
        seconds, updates = mean(it.seconds for it in group), mean(it.updates for it in group)
        each = ", ".join(f"{score:.3f}" for score in scores)
        cells = group[0].who, seeds, f"{seconds:.0f}", f"{updates:.0f}", each, f"{mean(scores):.3f}"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(points: Sequence[Point], path: Path) -> None:
    """Scores over seconds: a dot for each training, a line through the means."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), dpi=120, layout="constrained")
    axis = figure.subplots()
    for number, who in enumerate(dict.fromkeys(point.who for point in points)):
        own = [point for point in points if point.who == who]
        colour = f"C{number}"
        axis.scatter([it.seconds for it in own], [it.average_precision for it in own], 12, colour)
        means = [
            (mean(it.seconds for it in g), mean(it.average_precision for it in g))
            for g in rounds(own)
        ]
        axis.plot(*zip(*means, strict=True), color=colour, label=who, marker="o", markersize=4)
    axis.set_xlabel("seconds of training")
    axis.set_ylabel("average precision on slices held back")
    axis.legend(frameon=False)
    figure.savefig(path)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    files: dict[str, Any] = {"nargs": 2, "default": SAMPLE, "metavar": ("IMAGE", "LABELS")}
    parser.add_argument("--train", help="what is learned from", **files)
    parser.add_argument("--held", help="what is scored", **files)
    parser.add_argument("--recipe", type=Path, default=ROOT / "volumes" / "fibsem.yaml")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--who", nargs="+", default=["znnpy", "torch", "forest"])
    parser.add_argument("--seconds", nargs="+", type=float, default=[20.0, 60.0])
    parser.add_argument("--updates", nargs="+", type=int, help="in place of --seconds")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rates", type=int, metavar="N", help="compare N updates, train nothing")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--picture", type=Path, metavar="PNG")
    given = parser.parse_args()
    if given.rates is not None and given.rates < 10:
        parser.error("--rates: at least 10 updates, of which the first few are not timed")
    return given


if __name__ == "__main__":
    main()
