"""What `znnpy predict` says before it begins, above all with --dry-run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from znnpy.data.memory import readable
from znnpy.scheduler.cores import available_cores

if TYPE_CHECKING:
    from znnpy.data.volume import Triple
    from znnpy.data.writing.destination import Destination
    from znnpy.infer.job import Job


def print_job(job: Job, destination: Destination) -> None:
    """Blocks, patch, halo, memory, size, time, what stands at the output's place; sizes z, y, x."""
    from znnpy.data.writing.standing import standing
    from znnpy.infer.trial import trial_seconds

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
    """That the mask wants no voxel of what is predicted, in words; "" if it wants any."""
    if any(_wanted(job)):
        return ""
    (mask,) = job.scene.masks.values()
    return (
        f"{mask.name} is 0 wherever something is predicted, or does not reach there: no voxel is computed, and all "
        "that is written is 0"
    )


def _wanted(job: Job) -> Iterator[bool]:
    """Which blocks hold voxels of the mask."""
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
