"""The final evaluation of a run: scores on held-out volumes, written as result.json and a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from znnpy.config.models import Config, VolumeSection
from znnpy.data.config_volumes import open_scene
from znnpy.data.scene import Scene
from znnpy.errors import RunError
from znnpy.evaluation.scores import Objects
from znnpy.evaluation.volume import (
    DEFAULT,
    Evaluation,
    evaluate,
    shows_objects,
    tuned_thresholds,
)
from znnpy.pictures import side_by_side
from znnpy.train.run_directory import PICTURE, RESULT, read_object, write_json
from znnpy.train.start import SavedRun


def held_out(config: Config) -> tuple[VolumeSection, ...]:
    """Return the volumes to evaluate on: data.test, or data.validation if it is not given; only those with labels."""
    data = config.data
    # `data.test: []` means none at all, which is why it is not treated like None.
    sections = data.validation if data.test is None else data.test
    return tuple(section for section in sections if section.labels is not None)


def spoken(config: Config) -> str:
    """Return a phrase for messages: which volumes the final evaluation uses."""
    data, sections = config.data, held_out(config)
    if sections:
        names = ", ".join(str(next(iter(section.image.values()))) for section in sections)
        return f"evaluating on {names}" + (" (data.validation)" if data.test is None else "")
    return f"no final evaluation: {why_none(config)}"


def why_none(config: Config) -> str:
    """Return a sentence for users: why there is no volume to evaluate on."""
    test = config.data.test
    if test is None:
        return "neither data.test nor data.validation names a volume with labels"
    return "no volume of data.test has labels" if test else "data.test is []"


def evaluate_run(
    saved: SavedRun, sections: tuple[VolumeSection, ...], objects: Objects = DEFAULT
) -> list[Evaluation]:
    """Evaluate a run's newest weights on volumes, with baselines fitted on its first training volume.

    The threshold of objects, if none is given, is the best one on the first labelled volume of data.validation that is
    not evaluated.
    """
    return evaluate_scenes(
        saved,
        (open_scene(section, saved.config.data, saved.network) for section in sections),
        objects,
        sections,
    )


def evaluate_scenes(
    saved: SavedRun,
    scenes: Iterable[Scene],
    objects: Objects = DEFAULT,
    sections: tuple[VolumeSection, ...] = (),
) -> list[Evaluation]:
    """Evaluate as `evaluate_run` on labelled scenes, one after the other; all are closed at the end.

    `sections`: what they were opened from, which tunes nothing.
    """
    found = []
    config, network = saved.config, saved.network
    unread = config.data.model_copy(update={"in_memory": False})  # baselines need a part of it
    with ExitStack() as stack:
        train = None
        if config.data.train:
            train = open_scene(config.data.train[0], unread, network)
            stack.callback(train.close)
        tuned = _tuned(saved, objects, sections)
        for scene in scenes:
            stack.callback(scene.close)
            found += evaluate(saved.weights, scene, train, objects, tuned)
    return found


def _tuned(
    saved: SavedRun, objects: Objects, sections: tuple[VolumeSection, ...]
) -> Mapping[str, float]:
    """Return the thresholds of objects that are best on a volume for validation; none if there is no other one."""
    config = saved.config
    known = [it for it in config.data.validation if it.labels is not None and it not in sections]
    if objects.threshold is not None or not known or not shows_objects(config, saved.network):
        return {}
    scene = open_scene(known[0], config.data.model_copy(update={"in_memory": False}), saved.network)
    try:
        return tuned_thresholds(saved.weights, scene, objects)
    finally:
        scene.close()


def is_scored(path: Path, iteration: int, sections: tuple[VolumeSection, ...]) -> bool:
    """Return whether intact scores of these weights on these volumes exist."""
    try:
        result = read_object(path / RESULT)
    except RunError:
        return False
    wanted = {"iteration": iteration, "volumes": _plain(sections)}
    # Scores of other weights or volumes are computed anew.
    return result is not None and wanted.items() <= result.items()


def write_result(
    path: Path, iteration: int, sections: tuple[VolumeSection, ...], evaluations: list[Evaluation]
) -> None:
    """Write all scores as JSON; before them a PNG of the first evaluation: raw image, label, prediction, objects.

    There is no picture where it cannot be drawn (`is_drawn`).
    """
    if evaluations and is_drawn(first := evaluations[0]):
        side_by_side(
            path / PICTURE,
            first.known.raw,
            first.known.target,
            first.found,
            first.objects,
            caption=f"{Path(first.volume).name}, iteration {iteration}",
            span=first.span,
        )
    # Last: while it is missing the same command scores again, so the picture is never left out.
    write_json(path / RESULT, result_of(iteration, evaluations) | {"volumes": _plain(sections)})


def is_drawn(evaluation: Evaluation) -> bool:
    """Return whether there is a picture: classes of whole images give one voxel each, which is none."""
    return evaluation.known.raw.shape[1:] != (1, 1)


def result_of(iteration: int, evaluations: list[Evaluation]) -> dict[str, Any]:
    """Return the scores, JSON-able."""
    records = [evaluation.record() for evaluation in evaluations]
    return {"iteration": iteration, "evaluations": records}


def _plain(sections: tuple[VolumeSection, ...]) -> list[dict[str, Any]]:
    return [section.model_dump(mode="json", exclude_none=True) for section in sections]
