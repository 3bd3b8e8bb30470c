"""The command `znnpy segment`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from znnpy.cli.global_options import global_options, shown_labels, suggest
from znnpy.cli.module_loading import loading
from znnpy.cli.options import (
    MOST_VOXELS,
    SIZES,
    AllowFilters,
    MaxMemory,
    block_sizes,
    filters,
    memory_bytes,
)
from znnpy.cli.preconditions import refuse_ranks
from znnpy.cli.tuning import tune_request
from znnpy.segment.method import METHODS

if TYPE_CHECKING:
    from znnpy.data.class_labels import Numbering
    from znnpy.data.volume import Volume
    from znnpy.data.writing.destination import Destination
    from znnpy.segment.job import Request
    from znnpy.segment.tile_work import Settings


def summaries() -> str:
    """Return the help of --method: what each method does."""
    methods = "; ".join(f"{method.name}: {method.summary}" for method in METHODS.values())
    return f"{methods} (default: agglomerate, of a foreground components)."


PredictionFile = Annotated[
    str,
    typer.Argument(metavar="PREDICTION", help="What `znnpy predict` wrote: FILE[:DATASET]."),
]


def segment(
    prediction: PredictionFile,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:DATASET]",
            help="HDF5 file to write (dataset volumes/labels/neuron_ids), a folder name.zarr, .n5 or .precomputed, or "
            "an image name.nii.gz, .nrrd, .mha or .mrc. Needed unless --tune is given.",
        ),
    ] = None,
    method: Annotated[
        Literal[*METHODS] | None,  # type: ignore[valid-type]  # plug-ins have added theirs when it is read
        typer.Option(help=summaries()),
    ] = None,
    kind: Annotated[
        Literal["auto", "boundary", "foreground", "affinity"],
        typer.Option(
            help="What the prediction shows (auto: affinity if its file has offsets, else boundary)."
        ),
    ] = "auto",
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            min=0,
            max=1,
            help="Probability that separates objects: boundaries below it, foreground and "
            "affinities above it join (default: 0.5; watershed: 0.2 or, above, 0.8).",
        ),
    ] = None,
    min_size: Annotated[
        int,
        typer.Option(
            "--min-size",
            metavar="VOXELS",
            min=0,
            max=MOST_VOXELS,
            help="Drop objects of fewer voxels; watershed: ignore smaller seeds too; agglomerate: join them to "
            "the neighbour with the least boundary between.",
        ),
    ] = 0,
    channel: Annotated[
        list[int] | None,
        typer.Option(
            metavar="C",
            min=0,
            help="Channel to use, from 0; affinities: several times (default: all).",
        ),
    ] = None,
    first: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Number of the first class, with --method classes (default: what the prediction's file says, else 0).",
        ),
    ] = None,
    regions: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="With --method classes, of channels that may overlap (target: mask): the label that each paints where "
            "it is above a half, later ones over earlier ones; 0 where none is.",
        ),
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:DATASET]",
            help="Labels of the prediction: search method, threshold and least size by CREMI score, all that is not "
            "given here; then write objects, if there is an --output.",
        ),
    ] = None,
    mask: Annotated[
        str | None,
        typer.Option(metavar="FILE[:DATASET]", help="Voxels that count for --tune (not 0)."),
    ] = None,
    block: Annotated[
        str | None,
        typer.Option(
            metavar=SIZES, help="Voxels written at once, of methods that work block by block."
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS|local:N",
            help="Work by the workers of a dask scheduler, or by N processes of this machine.",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Tiles worked on at once (default: as many as cores and memory allow).",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is at the output.")
    ] = False,
    allow_filter: AllowFilters = None,
    max_memory: MaxMemory = None,
) -> None:
    """Segment a prediction into objects: writes uint64 labels, 0 where there is none, at the prediction's place.

    Works block by block, whatever the size of the volume, and gives the same labels for any blocks and processes;
    --method classes writes class numbers, as uint8 or uint16. If stopped, the same command resumes. Into TIFF and MRC,
    whose numbers are narrower, objects are written at once, from memory.
    """
    with loading():
        from znnpy.data.opening import open_volume
        from znnpy.data.writing.destination import Destination
        from znnpy.segment.job import DATASET, Request, refuse_labels, settled, write_labels
        from znnpy.segment.job import segment as run
        from znnpy.segment.tile_work import Settings

    refuse_ranks("segment")
    if (output is None and tune is None) or (mask is not None and tune is None):
        raise typer.BadParameter("--output is needed" if mask is None else "--mask is for --tune")
    if threads is not None and (output is None or dask is not None):
        why = "work in this process, and with --dask none does" if output else "are for --output"
        raise typer.BadParameter(f"--threads {why}")
    wanted = None if kind == "auto" else kind
    numbering = _numbering(method, first, regions)
    request = Request(method, wanted, threshold, min_size, tuple(channel or ()), numbering)
    memory, allowed = memory_bytes(max_memory), filters(allow_filter)
    if tune is not None:
        request = tune_request(prediction, tune, mask, request, allowed, following=output is None)
        method = request.method
    if output is None:
        return
    destination = Destination.named(output, DATASET, overwrite)
    settings = Settings(block_sizes(block), memory, allowed, threads=threads)
    with open_volume(prediction, allow_filters=allowed) as volume:
        if method and METHODS[method].blocks is not None:
            _refuse_options(method, destination, {"--block": block})
            if first is None and regions is None and volume.first_class:
                request = replace(request, numbering=replace(numbering, first=volume.first_class))
            _write_classes(destination, volume, request, settings, dask)
        else:
            _, chosen, _ = settled(volume, request)
            # Formats with narrower integers take the numbers once it is known how many there are.
            if chosen.join is not None and destination.format.wide:
                _write_objects(destination, volume, request, settings, dask)
            else:
                given = {"--block": block, "--dask": dask, "--threads": threads}
                _refuse_options(chosen.name, destination, given)
                refuse_labels(destination, volume)
                found = run(volume, request, memory)
                write_labels(destination, volume, found, request)
                _tell(destination, volume, len(found.sizes), found.assigned)
    suggest("view", prediction, shown_labels(destination))


def _numbering(method: str | None, first: int | None, regions: str | None) -> Numbering:
    from znnpy.data.class_labels import Numbering

    if first is not None and (method is None or METHODS[method].blocks is None):
        raise typer.BadParameter("--first is for --method classes")
    if regions is None:
        return Numbering(first or 0)
    numbers = [part.strip() for part in regions.split(",")]
    if not all(part.isdecimal() and len(part) < 6 for part in numbers):
        raise typer.BadParameter("--regions must be numbers with commas between, such as 1,2,3")
    if first or method is None or METHODS[method].blocks is None:
        raise typer.BadParameter("--regions is for --method classes, without --first")
    return Numbering(regions=tuple(int(part) for part in numbers))


def _refuse_options(method: str, destination: Destination, options: Mapping[str, object]) -> None:
    """Raise BadParameter for the first option that is given, where there is none."""
    name = next((name for name, value in options.items() if value is not None), None)
    if name is None:
        return
    if METHODS[method].join is not None:
        what = f"numbers of objects are written to {destination.path.name} at once, without {name}"
        raise typer.BadParameter(f"{what}; name a file .h5 or a folder .zarr")
    able = ", ".join(name for name, it in METHODS.items() if it.join is not None)
    raise typer.BadParameter(f"--method {method} takes no {name}; there is one for {able}")


def _write_objects(
    destination: Destination, volume: Volume, request: Request, settings: Settings, dask: str | None
) -> None:
    from znnpy.segment.objects_by_blocks import write_objects

    with _working(settings, dask) as working:
        found = write_objects(destination, volume, request, working)
    if found is None:
        typer.echo(f"{destination.name}  {volume.extent} (z, y, x): finished")
    else:
        voxels = math.prod(volume.extent)
        _tell(destination, volume, found.objects, found.assigned / voxels)


def _tell(destination: Destination, volume: Volume, count: int, share: float) -> None:
    typer.echo(
        f"{destination.name}  {volume.extent} (z, y, x): {count:,} object{'s' * (count != 1)}, "
        f"{share:.1%} of the voxels"
    )


def _write_classes(
    destination: Destination, volume: Volume, request: Request, settings: Settings, dask: str | None
) -> None:
    from znnpy.segment.by_blocks import write_by_blocks

    with _working(settings, dask) as working:
        spec = write_by_blocks(destination, volume, request, working)
    typer.echo(f"{destination.name}  {spec.shape[1:]} (z, y, x): class numbers, {spec.dtype}")


@contextmanager
def _working(settings: Settings, dask: str | None) -> Iterator[Settings]:
    """Yield settings with the workers that --dask names, and a bar; signals stop what is done meanwhile."""
    from znnpy.infer.blocks_bar import BlocksBar
    from znnpy.infer.dask_cluster import cluster, risk
    from znnpy.infer.memory import local_processes
    from znnpy.train.signals import StopSignals

    if dask is not None and (words := risk(dask)):
        typer.echo(f"warning: {words}", err=True)
    with (
        StopSignals(),
        BlocksBar("segmenting", quiet=global_options().quiet) as bar,
        nullcontext() if dask is None else cluster(dask) as client,
    ):
        # Two threads in each process.
        threads = settings.threads if dask is None else 2 * local_processes(dask)
        yield replace(settings, client=client, threads=threads, show=bar.prepare)
