"""The command `znnpy export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from znnpy.cli.global_options import note
from znnpy.cli.module_loading import loading
from znnpy.cli.options import CheckpointName, RunPath, new_path, which_checkpoint
from znnpy.cli.preconditions import refuse_ranks
from znnpy.interop.export.formats import FORMATS


def _summaries() -> str:
    # Help is markup, in which [onnx] would be a style.
    return "; ".join(f"{it.name}: {it.summary}" for it in FORMATS.values()).replace("[", "\\[")


def export(
    run: RunPath,
    format_: Annotated[
        Literal[*FORMATS] | None,  # type: ignore[valid-type]  # plug-ins may have added theirs
        typer.Option(
            "--format", help=f"{_summaries()} (default: what the suffix of --output stands for)."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=new_path,
            help="File to write (default: the run's name with the format's suffix).",
        ),
    ] = None,
    checkpoint: CheckpointName = "latest",
    logits: Annotated[
        bool,
        typer.Option(
            "--logits", help="End with logits: without the logistic or softmax of the loss."
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that are there.")
    ] = False,
) -> None:
    """Write a run's network for other programs: what it computes from a prepared image, with its weights.

    What a format cannot say is named before anything is written. Preparation, windows, mirror images and strides that
    predict fills in are not part of it.
    """
    with loading():
        from znnpy.interop.export.formats import export as written
        from znnpy.interop.export.formats import format_named
        from znnpy.interop.export.trained import Trained
        from znnpy.train.progress import Plain
        from znnpy.train.start import read_run

    refuse_ranks("export")
    if format_ is not None:
        chosen = format_
    elif output is not None:
        chosen = format_named(output)
    else:
        raise typer.BadParameter("--format or --output is needed, such as --output net.onnx")
    alone = FORMATS[chosen].weights_alone
    if logits and alone:
        raise typer.BadParameter(f"--logits: not for {chosen}, which has weights alone")
    which = which_checkpoint(checkpoint)
    trained = Trained(read_run(run, Plain(), which=which), logits)
    for path in written(trained, chosen, output, overwrite=overwrite):
        typer.echo(str(path))
    for text in trained.notes(alone):
        note(text)
