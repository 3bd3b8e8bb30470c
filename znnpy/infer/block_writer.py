"""Runs a planned prediction block by block: reads, computes, writes, and resumes after a kill.

Reads the next block and writes the last one while the network computes; one of each at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from znnpy.data.writing.block_output import BlockOutput, Finished, open_output
from znnpy.data.writing.destination import Destination
from znnpy.engine.model import Model
from znnpy.engine.progress import Report
from znnpy.errors import ChangedError, WriteError, reason, refuse_own
from znnpy.infer.blocks import Region
from znnpy.infer.config_model import patch_model
from znnpy.infer.job import Job
from znnpy.infer.log import BlockLog, log_of
from znnpy.infer.parallel import Parts, parts_of, whole_part
from znnpy.infer.predict import VolumePrediction
from znnpy.infer.tiling import AnyGrid

Block = TypeVar("Block")
Read = TypeVar("Read")
Made = TypeVar("Made")


def overlapped(
    blocks: Sequence[Block],
    read: Callable[[Block], Read],
    compute: Callable[[Block, Read], Made],
    write: Callable[[Block, Made], None],
) -> Iterator[Block]:
    """Run `compute` here and `read`, `write` in a thread each; yield blocks once they are written.

    At most two blocks are read and not computed, at most two computed and not written. The first
    error of any of the three is raised here, after what is being written has ended.
    """
    with (
        ThreadPoolExecutor(1, "znnpy-read") as reader,
        ThreadPoolExecutor(1, "znnpy-write") as writer,
    ):
        coming: Future[Read] | None = reader.submit(read, blocks[0]) if blocks else None
        going: tuple[Block, Future[None]] | None = None
        for index, block in enumerate(blocks):
            assert coming is not None
            given = coming.result()
            more = index + 1 < len(blocks)
            coming = reader.submit(read, blocks[index + 1]) if more else None
            made = compute(block, given)
            # Freed before the next block is waited for: `memory.INPUTS` counts one that is computed
            # from and one that is read.
            del given
            if going is not None:
                going[1].result()
                yield going[0]
            going = (block, writer.submit(write, block, made))
            # The writer holds it now; keeping it here would let three outputs live while the next
            # one is computed.
            del made
        if going is not None:
            going[1].result()
            yield going[0]


@dataclass(frozen=True)
class Done:
    """Progress of a prediction: blocks, voxels of this process, its seconds, and the voxels left."""

    blocks: int
    total: int
    voxels: int
    seconds: float
    left: int

    @property
    def voxels_per_s(self) -> float:
        """Output voxels per second in this process."""
        return self.voxels / self.seconds if self.seconds else 0.0

    @property
    def remaining(self) -> float | None:
        """Seconds that the rest will take; None while nothing is known."""
        return self.left / self.voxels_per_s if self.voxels else None


Show = Callable[[Done], None]


def run_job(
    job: Job, destination: Destination, show: Show | None = None, report: Report | None = None
) -> None:
    """Write a prediction; blocks that an earlier process wrote are kept.

    The file appears at its place only when every block is written. Raises VolumeError for outputs in
    the way and for disks that fail; finished blocks stay finished.
    """
    with suppress(Finished), writing(job, destination) as (output, log, left):
        if left:
            with predicting(job, report) as prediction:
                _run(job, prediction, left, output, log, show)


@contextmanager
def writing(
    job: Job, destination: Destination
) -> Iterator[tuple[BlockOutput, BlockLog, list[Region]]]:
    """Yield the output, its log and the blocks that are left; finish the output afterwards.

    Raises `Finished` when an earlier process had written all, ChangedError when an input is not what it
    was: a block computed from it does not count as done.
    """
    path = destination.path
    try:
        with (
            open_output(destination, job.spec) as output,
            BlockLog(log_of(path)) as log,
        ):
            # `open_output` has compared finished blocks with their checksums; those that differ are
            # among these.
            left = [block for block in job.order if job.placed(block) not in output.done]
            log.note(
                "start", blocks=len(job.order), left=len(left), **job.spec.head(destination.dataset)
            )
            yield output, log, left
            # Only if the body has ended without an error.
            output.finish()
            _note_end(log, path)
    except ChangedError as error:
        raise ChangedError(
            f"{error}. The blocks of {path} that are done are of what it held before: the same command "
            "goes on once that is back, with its time of change; for other data add --overwrite"
        ) from error
    except OSError as error:
        # Faults of znnpy's own code are not the disk's.
        refuse_own(error)
        raise WriteError(f"{path} cannot be written: {reason(error)}") from error


def _note_end(log: BlockLog, path: Path) -> None:
    try:
        log.note("finish")
    except OSError as error:
        raise WriteError(
            f"{path} is written whole, but its log {log_of(path)} is not: {reason(error)}"
        ) from error


@contextmanager
def predicting(
    job: Job, report: Report | None = None, grid: AnyGrid | None = None
) -> Iterator[VolumePrediction]:
    """Yield the job's model with its weights, predicting in its patches, or in those of `grid`."""
    # As it was planned, or recorded in the journal: an estimate of another version might choose
    # otherwise.
    plan = job.candidate.plan.to_record()
    engine, config = job.engine_bytes, job.weights.config
    with patch_model(config, job.network, job.patch, plan, report=report, most=engine) as model:
        model.set_parameters(job.weights.parameters)
        with parts_of(model.threads) as parts:
            yield prediction_with(job, model, grid, parts)


def prediction_with(
    job: Job, model: Model, grid: AnyGrid | None = None, parts: Parts = whole_part
) -> VolumePrediction:
    """Return the prediction of a job by an existing model."""
    return VolumePrediction(
        model,
        job.scene,
        job.field,
        job.norms,
        job.finish,
        job.kept,
        grid or job.grid,
        parts,
        job.request.mirror,
    )


def _run(
    job: Job,
    prediction: VolumePrediction,
    left: list[Region],
    output: BlockOutput,
    log: BlockLog,
    show: Show | None,
) -> None:
    name, tally = job.request.node.name, Tally(job, left, log, show)
    for block in overlapped(
        left,
        prediction.read,
        lambda _, given: prediction.compute(given)[name],
        lambda block, values: output.write(job.placed(block)[0], values),
    ):
        tally.add(block)


class Tally:
    """Counts finished blocks, logs each, and reports progress."""

    def __init__(self, job: Job, left: list[Region], log: BlockLog, show: Show | None) -> None:
        self._log, self._show = log, show
        self._total, self._blocks = len(job.order), len(job.order) - len(left)
        self._rest, self._voxels = sum(block.voxels for block in left), 0
        self._began = self._last = time.monotonic()

    def add(self, block: Region) -> None:
        """Count a block that is on the disk."""
        now = time.monotonic()
        self._blocks += 1
        self._voxels += block.voxels
        left = self._rest - self._voxels
        done = Done(self._blocks, self._total, self._voxels, now - self._began, left)
        self._log.block(block, now - self._last, done.voxels_per_s)
        self._last = now
        if self._show:
            self._show(done)
