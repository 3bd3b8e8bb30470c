"""Scores objects of boundary maps by each method, tuned by cross-fitting: on one half of a volume, scored on the other.

    pip install scikit-learn "znnpy[mutex]"
    python scripts/bench_objects.py
    python scripts/bench_objects.py --train t.h5:raw t.h5:labels --held v.h5:raw v.h5:labels --every 1 4 --run run thick

Maps: the raw image inverted, the boundaries of a random forest (`peers/forest.py`) that learned from `--train`, and
those of runs, if they are named, one for each of `--every`. Each method of `znnpy segment` has threshold and least
size of its own, chosen as `--tune` does on one half of the held volume (along x) and scored on the other, and the
other way round; what is printed is the mean. Anisotropic data are simulated by `--every N`: of N sections one is left,
in training and held volume, and voxels are N times longer along z, which its run should have learned from, too.
Whoever reads the scores looked at the volume of `--held`: it is no test volume any more. By default the shipped
sample: its training volume up to slice 38, and the slices behind.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from peers.forest import Forest

from znnpy.data.opening import open_volume
from znnpy.data.sampling.targets import BoundaryTarget
from znnpy.data.volume import ArrayVolume
from znnpy.evaluation.objects import read_pair, score_objects
from znnpy.evaluation.tuning import tuned
from znnpy.interactive.run import open_run
from znnpy.segment.job import Request, segment

ROOT = Path(__file__).parent.parent
SAMPLE = [f"{ROOT}/volumes/fibsem/train-{name}.h5:stack" for name in ("image", "gt.lzf")]
PART = 38  # slices of the sample that are learned from
SCORES = ("adapted_rand_error", "voi_split", "voi_merge", "cremi_score")
METHODS = ("components", "watershed", "agglomerate", "median", "multicut")


@dataclass(frozen=True)
class Scored:
    """One map and method: means over both halves, and the thresholds that were chosen."""

    every: int
    map: str
    method: str
    scores: dict[str, float]
    thresholds: list[float]
    least: list[int]


def main() -> None:
    """Print a row of a table for each map and method."""
    options = _options()
    columns = ["every", "map", "method", *SCORES, "thresholds", "least sizes"]
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|", flush=True)
    found = []
    runs = options.run or [None] * len(options.every)
    for every, run in zip(options.every, runs, strict=True):
        for row in rows(options, every, run):
            found.append(row)
            scores = [f"{row.scores[name]:.3f}" for name in SCORES]
            chosen = [
                ", ".join(f"{it:g}" for it in values) for values in (row.thresholds, row.least)
            ]
            print(
                "| " + " | ".join([str(every), row.map, row.method, *scores, *chosen]) + " |",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in found], indent=2) + "\n")


def rows(options: argparse.Namespace, every: int, run: Path | None) -> Iterator[Scored]:
    """Score all maps of the held volume, of which one of `every` sections is left."""
    (raw, labels), (seen, truth) = volumes(options, every)
    size = (float(every), 1.0, 1.0)
    for name, values in maps(options, run, raw, labels, seen).items():
        for method in METHODS:
            if name == "raw" and method != "watershed":
                continue  # its values are no probabilities, whose mean says something
            yield cross_fitted(every, name, method, values, truth, size)


def volumes(options: argparse.Namespace, every: int) -> list[tuple[Any, Any]]:
    """Read image and labels (z, y, x) to learn from and to score."""
    found = []
    for names in (options.train, options.held):
        image, labels = (
            read(name, role) for name, role in zip(names, ("raw", "labels"), strict=True)
        )
        if options.train == options.held:
            part = slice(PART, None) if found else slice(PART)
            image, labels = image[part], labels[part]
        elif not found and options.slices:
            image, labels = image[-options.slices :], labels[-options.slices :]
        found.append((image[::every], labels[::every]))
    return found


def read(name: str, role: Any) -> Any:
    """Read one channel of a volume."""
    with open_volume(name, role=role) as volume:
        return volume.read_all()[0]


def maps(
    options: argparse.Namespace, run: Path | None, raw: Any, labels: Any, seen: Any
) -> dict[str, Any]:
    """Return boundary maps of the image that is held, by what made them."""
    found = {"raw": 1 - seen.astype(np.float32) / 255}
    target, weight = BoundaryTarget(1).compute(labels[None], np.ones(labels.shape, np.bool_))
    trees = Forest(raw, target[0], weight[0], 0, options.threads)
    found["forest"] = np.asarray(trees.predict(seen), np.float32)
    if run is not None:
        found[run.name] = open_run(run).predict(seen)[0]
    return found


def cross_fitted(
    every: int, name: str, method: str, values: Any, truth: Any, size: tuple[float, float, float]
) -> Scored:
    """Tune on either half along x and score on the other."""
    middle = values.shape[2] // 2
    halves = [
        [ArrayVolume(np.ascontiguousarray(it[:, :, part]), what, size) for it, what in both]
        for part in (slice(middle), slice(middle, None))
        for both in [((values, name), (truth, "labels"))]
    ]
    found, chosen = [], []
    for known, other in (halves, halves[::-1]):
        (best,) = tuned(known[0], known[1], None, Request(method), print)
        objects = segment(other[0], best.request).labels
        found.append(score_objects(read_pair(ArrayVolume(objects, "objects", size), other[1])))
        chosen.append(best.request)
    scores = {key: mean(float(it[key] or 0.0) for it in found) for key in SCORES}
    levels = [float(it.threshold or 0.0) for it in chosen]
    return Scored(every, name, method, scores, levels, [it.min_size for it in chosen])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    files: dict[str, Any] = {"nargs": 2, "default": SAMPLE, "metavar": ("IMAGE", "LABELS")}
    parser.add_argument("--train", help="what the forest learns from", **files)
    parser.add_argument("--held", help="what is segmented and scored", **files)
    parser.add_argument(
        "--slices", type=int, default=0, help="last slices of --train that are used"
    )
    parser.add_argument("--every", nargs="+", type=int, default=[1], metavar="N")
    parser.add_argument(
        "--run", nargs="+", type=Path, help="runs whose boundaries are segmented, one for each N"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.run and len(options.run) != len(options.every):
        parser.error(f"{len(options.run)} runs for {len(options.every)} of --every")
    return options


if __name__ == "__main__":
    main()
