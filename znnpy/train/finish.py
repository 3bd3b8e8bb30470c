"""The end of a run: evaluates on a volume that training never saw, keeps scores and a picture."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from znnpy.config.models import Config, VolumeSection
from znnpy.infer.build import Weights
from znnpy.infer.evaluate import DEFAULT, Evaluation, evaluate
from znnpy.infer.material import open_scene
from znnpy.infer.scores import Objects
from znnpy.pictures import side_by_side
from znnpy.train.rundir import PICTURE, RESULT, write_json
from znnpy.train.start import SavedRun


def held_out(config: Config) -> tuple[VolumeSection, ...]:
    """Volumes to evaluate on: data.test, else data.validation; only those with labels."""
    sections = config.data.test or config.data.validation
    return tuple(section for section in sections if section.labels is not None)


def evaluate_run(
    saved: SavedRun, sections: tuple[VolumeSection, ...], objects: Objects = DEFAULT
) -> list[Evaluation]:
    """Evaluate a run's newest weights on volumes, with baselines from its first train volume."""
    found = []
    config, network = saved.config, saved.network
    with ExitStack() as stack:
        train = None
        if config.data.train:
            train = open_scene(config.data.train[0], config.data, network)
            stack.callback(train.close)
        for section in sections:
            scene = open_scene(section, config.data, network)
            stack.callback(scene.close)
            weights = Weights(config, network, saved.plan, saved.checkpoint.parameters)
            found += evaluate(weights, scene, train, objects)
    return found


def write_result(path: Path, iteration: int, evaluations: list[Evaluation]) -> None:
    """Scores as JSON, and raw, label and prediction of the first evaluation as a PNG."""
    records = [evaluation.record() for evaluation in evaluations]
    write_json(path / RESULT, {"iteration": iteration, "evaluations": records})
    if evaluations:
        first = evaluations[0]
        side_by_side(
            path / PICTURE,
            first.known.raw,
            first.known.target,
            first.found,
            caption=f"{Path(first.volume).name}, iteration {iteration}",
        )
