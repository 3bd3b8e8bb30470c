"""The command `znnpy segment`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from znnpy.cli.global_options import suggest
from znnpy.cli.options import AllowFilters, MaxMemory, filters, memory_bytes
from znnpy.cli.preconditions import refuse_ranks
from znnpy.segment.method import METHODS

if TYPE_CHECKING:
    from znnpy.data.writing.destination import Destination
    from znnpy.segment.job import Request


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
        str,
        typer.Option(
            metavar="FILE[:DATASET]",
            help="HDF5 file to write (dataset volumes/labels/neuron_ids), a folder name.zarr, or an image "
            "name.nii.gz, .nrrd, .mha or .mrc.",
        ),
    ],
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
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="Number of the first class, with --method classes (default: 0).",
        ),
    ] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is at the output.")
    ] = False,
    allow_filter: AllowFilters = None,
    max_memory: MaxMemory = None,
) -> None:
    """Segment a prediction into objects: writes uint64 labels, 0 where there is none, at the prediction's place.

    Works in memory, and refuses to start when there is not enough. --method classes writes class numbers as uint8 or
    uint16 block by block; if stopped, the same command resumes.
    """
    from znnpy.data.opening import open_volume
    from znnpy.data.writing.destination import Destination
    from znnpy.segment.job import DATASET, Request, refuse_labels, write_labels
    from znnpy.segment.job import segment as run

    refuse_ranks("segment")
    destination = Destination.named(output, DATASET, overwrite)
    wanted = None if kind == "auto" else kind
    request = Request(method, wanted, threshold, min_size, tuple(channel or ()), first)
    if method and METHODS[method].blocks is not None:
        memory = memory_bytes(max_memory)
        _write_by_blocks(prediction, destination, request, filters(allow_filter), memory)
        return
    with open_volume(prediction, allow_filters=filters(allow_filter)) as volume:
        refuse_labels(destination, volume)
        found = run(volume, request, memory_bytes(max_memory))
        write_labels(destination, volume, found, request)
    count = len(found.sizes)
    typer.echo(
        f"{destination.name}  {found.labels.shape} (z, y, x): {count:,} object{'s' * (count != 1)}, "
        f"{found.assigned:.1%} of the voxels"
    )
    suggest("view", prediction, destination.name)


def _write_by_blocks(
    prediction: str,
    destination: Destination,
    request: Request,
    allowed: tuple[str, ...],
    memory: int | None,
) -> None:
    from znnpy.data.opening import open_volume
    from znnpy.segment.by_blocks import write_by_blocks
    from znnpy.train.signals import StopSignals

    with StopSignals(), open_volume(prediction, allow_filters=allowed) as volume:
        spec = write_by_blocks(destination, volume, request, memory)
    typer.echo(f"{destination.name}  {spec.shape[1:]} (z, y, x): class numbers, {spec.dtype}")
    suggest("view", prediction, destination.name)
