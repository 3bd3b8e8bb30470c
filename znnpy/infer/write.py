"""Runs a planned prediction: blocks that are not done yet are read, computed and written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from znnpy.data.outputs import BlockOutput, Finished, open_output
from znnpy.engine.model import Model
from znnpy.engine.report import Report
from znnpy.errors import VolumeError
from znnpy.infer.blocks import Grid, Region, sub
from znnpy.infer.build import patch_model
from znnpy.infer.job import Job
from znnpy.infer.log import BlockLog, log_of
from znnpy.infer.pipeline import overlapped
from znnpy.infer.predict import VolumePrediction


@dataclass(frozen=True)
class Done:
    """How far a prediction is: blocks, voxels of this process, its seconds, and the voxels left."""

    blocks: int
    total: int
    voxels: int
    seconds: float
    left: int

    @property
    def voxels_per_s(self) -> float:
        """Output voxels a second in this process."""
        return self.voxels / self.seconds if self.seconds else 0.0

    @property
    def remaining(self) -> float | None:
        """Seconds that the rest will take; None while nothing is known."""
        return self.left / self.voxels_per_s if self.voxels else None


Show = Callable[[Done], None]


def run_job(
    job: Job,
    path: Path,
    dataset: str,
    overwrite: bool = False,
    show: Show | None = None,
    report: Report | None = None,
) -> None:
    """Write a prediction to `path`; what an earlier process wrote of it is kept.

    The file appears at `path` only when every block is written. Raises VolumeError for outputs in
    the way and for disks that fail; what is done stays done.
    """
    try:
        with (
            open_output(path, dataset, job.spec, overwrite) as output,
            BlockLog(log_of(path)) as log,
        ):
            left = [b for b in job.order if _place(job, b) not in output.done]
            log.note("start", blocks=len(job.order), left=len(left), **job.spec.head(dataset))
            if left:
                with predicting(job, report) as prediction:
                    _run(job, prediction, left, output, log, show)
            output.finish()
            log.note("finish")
    except Finished:
        return
    except OSError as error:
        raise VolumeError(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def predicting(
    job: Job, report: Report | None = None, grid: Grid | None = None
) -> Iterator[VolumePrediction]:
    """The job's model with its weights, predicting in its patches."""
    plan = job.candidate.plan.to_record()
    with patch_model(job.weights.config, job.network, job.patch, plan, report=report) as model:
        model.set_parameters(job.weights.parameters)
        yield prediction_with(job, model, grid)


def prediction_with(job: Job, model: Model, grid: Grid | None = None) -> VolumePrediction:
    """The prediction of a job by a model that is already there."""
    return VolumePrediction(model, job.scene, job.field, job.norms, job.finish, job.kept, grid)


def _run(
    job: Job,
    prediction: VolumePrediction,
    left: list[Region],
    output: BlockOutput,
    log: BlockLog,
    show: Show | None,
) -> None:
    name, total, origin = job.request.node.name, len(job.order), job.region.lower
    blocks, rest = total - len(left), sum(block.voxels for block in left)
    began = last = time.monotonic()
    voxels = 0
    for block in overlapped(
        left,
        prediction.read,
        lambda _, given: prediction.compute(given)[name],
        lambda block, values: output.write(sub(block.lower, origin), values),
    ):
        now = time.monotonic()
        blocks, voxels = blocks + 1, voxels + block.voxels
        done = Done(blocks, total, voxels, now - began, rest - voxels)
        log.block(block, now - last, done.voxels_per_s)
        last = now
        if show:
            show(done)


def _place(job: Job, block: Region) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    origin = job.region.lower
    return sub(block.lower, origin), sub(block.upper, origin)
