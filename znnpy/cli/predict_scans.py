"""`znnpy predict` of runs whose scans are prepared (`data.prepare`): case by case, labels in the scans' own voxels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from znnpy.cli.each_case import each_case
from znnpy.cli.global_options import global_options, suggest
from znnpy.cli.module_loading import loading
from znnpy.dataset_path import LABEL_NAMES

if TYPE_CHECKING:
    from znnpy.data.writing.destination import Destination
    from znnpy.infer.config_model import Weights
    from znnpy.infer.scan_cases import Case
    from znnpy.infer.scans import ScanModel
    from znnpy.train.members import Member
    from znnpy.train.start import SavedRun

LOGITS = "logits"  # dataset of logits


@dataclass(frozen=True)
class ScanRun:
    """What of a run predicts scans: `weights` without parameters, which members read; `shown`: where it came from."""

    weights: Weights
    members: Sequence[Member]
    shown: Mapping[str, Any]


def scan_run(saved: SavedRun, *, flips: bool) -> ScanRun:
    """Return what of a run predicts scans; of these weights nobody else shall keep any."""
    from znnpy.train.members import members_of

    weights, config = replace(saved.weights, parameters={}), saved.weights.config
    if not flips:
        inference = config.inference.model_copy(update={"flips": ()})
        weights = replace(weights, config=config.model_copy(update={"inference": inference}))
    shown = {"run": str(saved.path.resolve()), "iteration": saved.checkpoint.iteration}
    return ScanRun(weights, members_of(saved), shown)


def predict_scans(
    run: ScanRun, inputs: Sequence[str], output: str, *, logits: bool, overwrite: bool
) -> None:
    """Predict one case, or all of a folder, where cases that are written already are left as they are."""
    with loading():
        from znnpy.data.writing.destination import Destination
        from znnpy.data.writing.preflight import refuse_place
        from znnpy.infer.scan_cases import cases_of, extent_of
        from znnpy.infer.scan_job import scan_model

    channels = run.weights.network.outputs[0].channels if logits else 1
    cases = cases_of(inputs, output, "float32" if logits else "uint16", channels)
    usual = LOGITS if logits else LABEL_NAMES[0]
    places = [Destination.named(case.output, usual, overwrite) for case in cases]
    alone = len(cases) == 1 and cases[0].output == output
    if alone:
        refuse_place(places[0].path)
        places[0].refuse_standing()
    else:
        Path(output).expanduser().mkdir(parents=True, exist_ok=True)
    left = [
        (case, place)
        for case, place in zip(cases, places, strict=True)
        if alone or overwrite or not place.path.exists()
    ]
    if len(left) < len(cases):
        typer.echo(f"{len(cases) - len(left)} of {len(cases)} cases are written already")
    if not left:
        return
    # Of the first of all, so that a command that goes on has the bits of one that was not stopped.
    extent = extent_of(cases[0], run.weights.config.data)
    with scan_model(run.weights, run.members, logits=logits, extent=extent) as model:
        each_case(
            left,
            lambda it: _predict(model, it[0], run, it[1], logits),
            lambda it: it[0].channels[0],
            several=not alone,
        )
    if not logits:
        case, place = left[0]
        suggest("view", *case.channels[:1], f"labels={place.name}")


def _predict(model: ScanModel, case: Case, run: ScanRun, place: Destination, logits: bool) -> None:
    from znnpy.infer.blocks_bar import BlocksBar
    from znnpy.infer.scan_cases import open_case
    from znnpy.infer.scan_job import predict_scan

    with (
        open_case(case, run.weights.config.data) as volume,
        BlocksBar(place.path.name, quiet=global_options().quiet) as bar,
    ):
        shape = predict_scan(
            model, volume, run.weights, place, run.shown, logits=logits, progress=bar.count
        )
    axes = "(z, y, x)" if len(shape) == 3 else "(c, z, y, x)"
    typer.echo(f"{place.name}  {shape} {axes}")


def refused(given: Mapping[str, bool]) -> None:
    """Raise wrong usage for options that predictions of scans do not take."""
    names = [name for name, there in given.items() if there]
    if names:
        raise typer.BadParameter(
            f"{', '.join(names)}: not for a run that prepares its scans (data.prepare), whose labels are written whole"
        )
