"""The command `znnpy view`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from znnpy.cli.global_options import suggest
from znnpy.cli.next_prediction import suggest_predict
from znnpy.cli.options import AllowFilters, CheckpointName, filters, new_path, which_checkpoint
from znnpy.cli.preconditions import refuse_ranks

if TYPE_CHECKING:
    from znnpy.pictures.overlays import Layer
    from znnpy.train.start import Which

KINDS = ("raw", "prediction", "labels")


def view(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|[KIND=]FILE[:DATASET]",
            help="A run directory, or volumes of one place in the order of their panels. KIND is raw, "
            "prediction or labels, and guessed if not given.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=new_path,
            help="Folder for the PNGs (default: view, or view in the run).",
        ),
    ] = None,
    slices: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=1000, help="How many slices, evenly spaced."),
    ] = 3,
    axis: Annotated[
        Literal["z", "y", "x"], typer.Option(help="Axis that the slices are cut across.")
    ] = "z",
    napari: Annotated[
        bool, typer.Option("--napari", help="Open napari instead, if it is installed.")
    ] = False,
    checkpoint: CheckpointName = "latest",
    allow_filter: AllowFilters = None,
) -> None:
    """Draw slices of raw image, prediction and objects side by side, as PNGs.

    Voxels keep their proportions; objects keep their colours from slice to slice and lie over the raw
    image. A run shows the middle of its test volume: labels, prediction and its objects.
    """
    from znnpy.dataset_path import there
    from znnpy.pictures.overlays import draw_slices

    refuse_ranks("view")
    with ExitStack() as stack:
        run = len(sources) == 1 and there(f"{sources[0]}/config.yaml")
        allowed, which = filters(allow_filter), which_checkpoint(checkpoint)
        if which != "latest" and not run:
            raise typer.BadParameter("--checkpoint needs a run directory, not volumes")
        found = _of_run(Path(sources[0]), which, stack) if run else None
        layers = found or _of_files(sources, allowed, stack)
        if napari:
            from znnpy.pictures.napari_viewer import show

            show(layers)
            return
        folder = output or (Path(sources[0]) / "view" if run else Path("view"))
        for path in draw_slices(layers, folder, slices, axis):
            typer.echo(str(path))
    if run:
        suggest_predict(Path(sources[0]), "FILE:DATASET")
        return
    kinds = [layer.kind for layer in layers]
    if "prediction" in kinds and "labels" not in kinds:
        prediction = _split(sources[kinds.index("prediction")])[1]
        suggest("segment", prediction, "--output", "objects.h5")


def _of_files(sources: list[str], allowed: tuple[str, ...], stack: ExitStack) -> list[Layer]:
    from znnpy.data.opening import open_volume
    from znnpy.pictures.overlays import Layer, kind_of, title_of

    layers = []
    for text in sources:
        kind, source = _split(text)
        volume = open_volume(
            source, role="labels" if kind == "labels" else "raw", allow_filters=allowed
        )
        stack.callback(volume.close)
        layers.append(Layer(kind or kind_of(volume), volume, title_of(volume)))  # type: ignore[arg-type]
    return layers


def _split(text: str) -> tuple[str | None, str]:
    kind, equals, source = text.partition("=")
    if not equals or Path(text).exists():
        return None, text
    if kind not in KINDS:
        raise typer.BadParameter(f"{text!r}: before = stands one of {', '.join(KINDS)}")
    return kind, source


def _of_run(path: Path, which: Which, stack: ExitStack) -> list[Layer]:
    from znnpy.train.progress import Plain
    from znnpy.train.signals import StopSignals
    from znnpy.train.start import read_run
    from znnpy.train.views import layers_of_run, scene_of_run

    saved = read_run(path, Plain(), which=which)
    scene = scene_of_run(saved)
    stack.callback(scene.close)
    with StopSignals():
        return layers_of_run(saved, scene)
