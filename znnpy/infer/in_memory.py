"""Predicts a planned job into an array, with the same values as `block_writer` writes into a file."""

from __future__ import annotations

import time

import numpy as np

from znnpy.data.process_memory import available_memory, readable
from znnpy.data.volume import Array
from znnpy.engine.progress import Report
from znnpy.errors import PlanError
from znnpy.infer.block_writer import Done, Show, overlapped, predicting
from znnpy.infer.blocks import Region
from znnpy.infer.job import Job


def predict_array(job: Job, show: Show | None = None, report: Report | None = None) -> Array:
    """Return a prediction, (channel, z, y, x), of class numbers (z, y, x), in the job's dtype.

    Raises PlanError where it does not fit into memory.
    """
    _refuse_memory(job)
    found = np.empty(job.spec.shape, job.spec.dtype)
    name = job.request.node.name

    def write(block: Region, values: Array) -> None:
        lower, upper = job.placed(block)
        z, y, x = (slice(a, b) for a, b in zip(lower, upper, strict=True))
        found[:, z, y, x] = values

    began, voxels, whole = time.monotonic(), 0, job.region.voxels
    with predicting(job, report) as prediction:
        for count, block in enumerate(
            overlapped(
                job.order,
                prediction.read,
                lambda _, given: prediction.compute(given)[name],
                write,
            ),
            start=1,
        ):
            voxels += block.voxels
            if show:
                seconds = time.monotonic() - began
                show(Done(count, len(job.order), voxels, seconds, whole - voxels))
    return found if job.spec.channels else found[0]


def _refuse_memory(job: Job) -> None:
    needed, free = job.spec.nbytes, available_memory()
    if needed > free:
        raise PlanError(
            f"the prediction takes {readable(needed)} of memory, and {readable(free)} are available; `znnpy predict` "
            "writes it into a file block by block"
        )
