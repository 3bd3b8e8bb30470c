"""The command `znnpy evaluate`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from znnpy.cli.global_options import suggest
from znnpy.cli.module_loading import loading
from znnpy.cli.options import (
    MOST_VOXELS,
    AsJson,
    CheckpointName,
    MaxMemory,
    Overrides,
    ReplaceNonfinite,
    RunPath,
    Threads,
    overrides,
    replacing,
    volume_section,
    which_checkpoint,
)
from znnpy.cli.preconditions import refuse_ranks

if TYPE_CHECKING:
    from znnpy.config.models import Config, VolumeSection


def evaluate(
    run: RunPath,
    volume: Annotated[
        str | None,
        typer.Option(metavar="FILE[:DATASET]", help="Image to evaluate on (default: data.test)."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="FILE[:DATASET]", help="Labels of --volume.")
    ] = None,
    mask: Annotated[
        str | None, typer.Option(metavar="FILE[:DATASET]", help="Voxels of --volume that count.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            min=0,
            max=1,
            help="Probability of a boundary below which fragments join, of an affinity above which (default: the best "
            "on data.validation where that is another volume, else 0.5).",
        ),
    ] = None,
    min_size: Annotated[
        int,
        typer.Option(
            "--min-size",
            metavar="VOXELS",
            min=0,
            max=MOST_VOXELS,
            help="Drop objects of fewer voxels.",
        ),
    ] = 0,
    grow: Annotated[
        float,
        typer.Option(
            "--grow", metavar="VOXELS", min=0, help="Grow objects by up to so many voxels."
        ),
    ] = 0.0,
    checkpoint: CheckpointName = "latest",
    as_json: AsJson = False,
    replace_nonfinite: ReplaceNonfinite = False,
    set_: Overrides = None,
    threads: Threads = None,
    max_memory: MaxMemory = None,
) -> None:
    """Score a run's weights: loss, voxel error, average precision, adapted Rand, VOI.

    For values (square loss on others than 0 and 1): squared and absolute error, correlation of each channel.
    """
    with loading():
        from znnpy.cli.tables import print_evaluations
        from znnpy.evaluation.scores import Objects
        from znnpy.evaluation.volume import shows_objects
        from znnpy.train.final_evaluation import evaluate_run, result_of
        from znnpy.train.progress import Plain
        from znnpy.train.signals import StopSignals
        from znnpy.train.start import read_run

    refuse_ranks("evaluate")
    if (volume is None) != (labels is None):
        raise typer.BadParameter("--volume and --labels go together")
    changed = overrides(set_, threads, max_memory) + replacing(replace_nonfinite)
    saved = read_run(run, Plain(), changed, which_checkpoint(checkpoint))
    given = {"--threshold": threshold is not None, "--min-size": min_size > 0, "--grow": grow > 0}
    names = [name for name, there in given.items() if there]
    if names and not shows_objects(saved.config, saved.network):
        raise typer.BadParameter(
            f"{' and '.join(names)}: {run} shows no boundaries or affinities, of which objects are made"
        )
    with StopSignals():
        sections = _sections(saved.config, volume, labels, mask)
        found = evaluate_run(saved, sections, Objects(threshold, min_size, grow))
    if as_json:
        result = result_of(saved.checkpoint.iteration, found)
        typer.echo(json.dumps(result, indent=2))
    else:
        print_evaluations(found)
        suggest("view", run)


def _sections(
    config: Config, volume: str | None, labels: str | None, mask: str | None
) -> tuple[VolumeSection, ...]:
    from znnpy.errors import ConfigError
    from znnpy.train.final_evaluation import held_out, why_none

    if volume is not None:
        options = {"image": "--volume", "labels": "--labels", "mask": "--mask"}
        return (volume_section(options, image=volume, labels=labels, mask=mask),)
    sections = held_out(config)
    if not sections:
        known = any(section.labels for section in config.data.validation)
        other = ", or --set data.test=null for those of data.validation" if known else ""
        raise ConfigError(
            f"nothing to evaluate on: {why_none(config)}; give --volume and --labels, or "
            f"--set 'data.test=[{{image: FILE, labels: FILE}}]'{other}"
        )
    return sections
