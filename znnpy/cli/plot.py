"""The command `znnpy plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from znnpy.cli.global_options import suggest
from znnpy.cli.options import new_path
from znnpy.cli.preconditions import refuse_ranks

SUFFIXES = (".html", ".png")


def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run directories, finished or not."),
    ],
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE.html|FILE.png",
            parser=new_path,
            help="File to write (default: plot.html).",
        ),
    ] = Path("plot.html"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
) -> None:
    """Compare runs: losses, validation scores, learning rates and speed over iterations, in one page or picture."""
    from znnpy.errors import RunError
    from znnpy.train.display.comparison import compare, write_html, write_png

    refuse_ranks("plot")
    if output.suffix.lower() not in SUFFIXES:
        raise typer.BadParameter(
            f"must end in .html or .png; found {str(output)!r}", param_hint="--output"
        )
    if output.exists() and not overwrite:
        raise RunError(f"{output} exists already; name another file, or add --overwrite")
    compared = compare(runs)
    (write_png if output.suffix.lower() == ".png" else write_html)(output, compared)
    typer.echo(str(output))
    suggest("evaluate", runs[0])
