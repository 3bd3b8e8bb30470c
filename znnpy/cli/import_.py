"""The command `znnpy import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from znnpy.cli.global_options import note
from znnpy.cli.module_loading import loading
from znnpy.cli.next_prediction import suggest_predict
from znnpy.cli.options import Overrides, new_path
from znnpy.cli.preconditions import refuse_ranks

UNKNOWN = (
    "what it learned is not said: data.target is unknown, which evaluate and train need; say it here or there, such as "
    "--set data.target=boundary"
)
Model = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER|FILE",
        help="Model folder of nnU-Net v2 (plans.json, dataset.json, fold_0 ...), the checkpoint of one fold in it, "
        "an ONNX file, a bundle of MONAI, a package of bioimage.io, a checkpoint of torch-em or pytorch-3dunet with "
        "its config beside it; any file of weights with --architecture.",
    ),
]


def import_(
    model: Model,
    output: Annotated[
        Path,
        typer.Option(metavar="RUN", parser=new_path, help="Run directory to write."),
    ],
    architecture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="YAML file that says the network of a file of weights: {class: monai.UNet, arguments: {...}}.",
        ),
    ] = None,
    set_: Overrides = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run that is there.")
    ] = False,
) -> None:
    """Take over a trained network of another program: writes a run directory, as train does.

    No code of its files runs. What is not supported is named before anything is written. Say what they do not, such as
    --set data.target=boundary.
    """
    with loading():
        from znnpy.interop.run import write_run
        from znnpy.interop.source import read_model

    refuse_ranks("import")
    found = read_model(model, architecture)
    config = write_run(found, output, overwrite=overwrite, overrides=set_ or ())
    typer.echo(f"{output}  {found.title}")
    for text in found.notes:
        note(text)
    if config.data.target.kind == "unknown":
        note(UNKNOWN)
    suggest_predict(output, output="values.h5")
