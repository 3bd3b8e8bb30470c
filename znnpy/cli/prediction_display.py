"""Shows what `znnpy predict` is about to do, above all with --dry-run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from znnpy.data.process_memory import readable
from znnpy.data.writing.block_output import OutputSpec
from znnpy.data.writing.destination import Destination, journal_of, partial_of
from znnpy.data.writing.journal import read_done, read_head, refuse_other
from znnpy.errors import VolumeError
from znnpy.scheduler.core_count import available_cores

if TYPE_CHECKING:
    from znnpy.data.volume import Triple
    from znnpy.infer.job import Job


def standing(destination: Destination, spec: OutputSpec) -> str:
    """Return as text what exists at an output's place, and what writing would do with it."""
    path, overwrite, stands = destination.path, destination.overwrite, destination.stands()
    journal = journal_of(path)
    head = read_head(journal)
    replaced = f"{destination.place} exists and would be replaced" if stands else ""
    if stands and not overwrite and not (head and read_done(journal)[1]):
        return (
            f"{destination.place} exists: would be refused; name another file, or add --overwrite"
        )
    if head is None:
        return replaced or f"{destination.place} does not exist yet"
    done, all_done = read_done(journal)
    try:
        refuse_other(partial_of(path), head, spec.head(destination.dataset))
    except VolumeError as error:
        if overwrite:
            return f"{partial_of(path)} is of another job and would be begun anew"
        return f"would be refused: {error}"
    if all_done:
        return f"{destination.place} was written by an earlier process: would only be moved to its place"
    count = f"{done} of {len(spec.blocks())} blocks are written"
    return f"{partial_of(path)} was begun: would go on, {count}"


def print_job(job: Job, destination: Destination) -> None:
    """Print blocks, patch, halo, memory, size, time, and what exists at the output's place; sizes z, y, x."""
    from znnpy.infer.speed_trial import trial_seconds

    threads = job.weights.config.run.threads or available_cores()
    seconds = job.runs * trial_seconds(job) / job.request.processes
    shape = job.spec.shape
    wanted = sum(_wanted(job))
    for what, value in (
        ("output", f"{shape} (c, z, y, x) {job.spec.dtype}, {readable(job.spec.nbytes)}"),
        (
            "first voxel",
            f"{job.region.lower} of all that can be predicted, {_size(job.field.shape)}",
        ),
        ("blocks", f"{len(job.order)} of {_size(job.spec.block)}, {wanted} of them to compute"),
        ("values", job.tiling.words()),
        ("patch", f"{_size(job.patch)}, {job.runs} network runs"),
        ("halo", f"{_size(job.halo)} voxels around each patch"),
        ("algorithms", _algorithms(job)),
        ("memory", f"{readable(job.memory)} at most, of {readable(job.limit)}"),
        (
            "time",
            f"about {_duration(seconds)} on {threads} threads, "
            f"{job.region.voxels / seconds:,.0f} voxels/s, by a trial run of one small patch",
        ),
        ("existing", standing(destination, job.spec)),
    ):
        typer.echo(f"{what:12} {value}")


def nothing_wanted(job: Job) -> str:
    """Return a note if the mask wants no voxel of what is predicted; else ""."""
    if any(_wanted(job)):
        return ""
    (mask,) = job.scene.masks.values()
    return (
        f"{mask.name} is 0 wherever something is predicted, or does not reach there: no voxel is computed, and all "
        "that is written is 0"
    )


def _wanted(job: Job) -> Iterator[bool]:
    """Yield for each block whether it holds voxels of the mask."""
    from znnpy.infer.predict import masked

    for block in job.order:
        mask = masked(job.scene, job.field, block)
        yield mask is None or bool(mask.any())


def _algorithms(job: Job) -> str:
    layers = job.candidate.plan.layers
    return ", ".join(f"{name} {layer.method('forward')}" for name, layer in layers.items())


def _size(triple: Triple | tuple[int, ...]) -> str:
    return " x ".join(map(str, triple))


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2g} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
