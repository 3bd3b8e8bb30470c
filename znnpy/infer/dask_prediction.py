"""One prediction by many processes, on one machine or many, through dask.distributed.

Everything is decided once, here. Workers read the blocks that they are given from the input files,
compute them by the recorded plan and write them to their places; this process alone keeps the
journal. All of them must see the same files under the same paths. Blocks of a worker that is lost go
to another, and may be written twice, with the same bytes.
"""

from __future__ import annotations

import itertools
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from znnpy_kernels.simd.lanes import LANES

from znnpy import plugins
from znnpy.config.models import VolumeSection
from znnpy.data.config_volumes import open_inputs
from znnpy.data.fingerprint import fingerprint
from znnpy.data.scene import Scene
from znnpy.data.volume import ArrayVolume
from znnpy.data.writing.block_output import BlockOutput, Finished, open_output
from znnpy.data.writing.destination import Destination
from znnpy.errors import VolumeError, ZnnpyError
from znnpy.infer.block_writer import Show, Tally, prediction_with, writing
from znnpy.infer.blocks import Region, sub
from znnpy.infer.config_model import patch_model
from znnpy.infer.job import Job
from znnpy.infer.log import BlockLog
from znnpy.infer.predict import VolumePrediction

# Stands for the scene while a job travels: open files cannot be pickled.
UNOPENED = Scene({"": ArrayVolume(np.zeros((1, 1, 1), np.uint8), "files to be opened")}, {})
# One computes while the next waits; more would be lost with a worker.
AHEAD = 2  # blocks that each thread of a worker is given before it asks
# Errors may be the machine's, such as a disk that fails: dask repeats elsewhere. More would hide a
# block that always fails.
RETRIES = (
    3  # times that dask repeats a block that failed, before the prediction ends with its error
)
LOOK = 5.0  # seconds between looks for workers, while no block ends
# Dask replaces a worker that dies, but not always one that dies as it starts; one may load for long on a busy machine.
ALONE = 120.0  # seconds without any worker until that is said


@dataclass(frozen=True)
class Shipment:
    """A job for workers, which open its scene from `section`. `token` identifies the job."""

    job: Job
    section: VolumeSection
    destination: Destination
    token: str


def run_distributed(
    client: Any,
    job: Job,
    section: VolumeSection,
    destination: Destination,
    show: Show | None = None,
) -> None:
    """Write a prediction as `block_writer.run_job` does, by the workers of a client."""
    with suppress(Finished), writing(job, destination) as (output, log, left):
        if left:
            path = destination.path.resolve()
            # The time tells a second job for the same file apart, whose plan may be another.
            token = f"{path} {time.time_ns()}"
            shipped = replace(job, scene=UNOPENED)
            shipment = Shipment(shipped, section, replace(destination, path=path), token)
            _run(client, shipment, left, output, log, show)


def predict_block(token: str, block: Region) -> int:
    """Read, compute and write one block, in a worker; return the checksum of what is on the disk."""
    from distributed import get_worker

    with _worker(get_worker().plugins[token].shipment) as worker:
        return worker.block(block)


class _Worker:
    """The state that a process keeps between the blocks of one job. Blocks are computed one at a time."""

    def __init__(self, shipment: Shipment) -> None:
        # Before anything is built: the network may name entries from outside of the package.
        plugins.load()
        job = shipment.job
        weights, self.token = job.weights, shipment.token
        if job.spec.job["lanes of this CPU"] != LANES:
            raise VolumeError("this machine's vectors have another width: its results would differ")
        scene = open_inputs(shipment.section, weights.config.data, weights.network)
        self._job = replace(job, scene=scene)
        _refuse_other_files(self._job)
        # `attached`: writes blocks and keeps no journal, which the process that began does.
        self._output = open_output(shipment.destination, job.spec, attached=True)
        plan = job.candidate.plan.to_record()
        self._model = patch_model(
            weights.config, job.network, job.patch, plan, most=job.engine_bytes
        )
        self._model.set_parameters(weights.parameters)
        self._prediction: VolumePrediction = prediction_with(self._job, self._model)
        # Two threads read and write at the same time; the model takes one at a time.
        self._turn = threading.Lock()

    def block(self, block: Region) -> int:
        """Write a block and return its checksum."""
        given = self._prediction.read(block)
        with self._turn:
            values = self._prediction.compute(given)[self._job.request.node.name]
        return self._output.put(sub(block.lower, self._job.region.lower), values)

    def close(self) -> None:
        """Release files, threads and memory."""
        self._model.close()
        self._output.close()
        self._job.scene.close()


_current: _Worker | None = None
_users = 0  # threads that compute with it
# Both threads of a process may come first, and those of two jobs at once.
_change = threading.Condition()


@contextmanager
def _worker(shipment: Shipment) -> Iterator[_Worker]:
    """Give this process's worker, made anew for another job, once no thread computes for the one before."""
    global _current, _users

    def free() -> bool:
        return not _users or (_current is not None and _current.token == shipment.token)

    with _change:
        # One job at a time, as each may take all of the memory that a worker has.
        _change.wait_for(free)
        if _current is None or _current.token != shipment.token:
            # None first: if the new one cannot be made, nobody may take the closed one for it.
            before, _current = _current, None
            if before is not None:
                before.close()
            _current = _Worker(shipment)
        found = _current
        _users += 1
    try:
        yield found
    finally:
        with _change:
            _users -= 1
            _change.notify_all()


def _refuse_other_files(job: Job) -> None:
    sources = job.request.sources or {}
    known, masks = job.spec.job, job.scene.masks.values()
    found = [(volume, name, known["input"][name]) for name, volume in job.scene.images.items()]
    found += [(volume, "mask", known["mask"]) for volume in masks]
    for volume, name, wanted in found:
        if fingerprint(volume, sources.get(name)) != wanted:
            raise VolumeError(f"{volume.name} is another file here than where the job was planned")


def _run(
    client: Any,
    shipment: Shipment,
    left: list[Region],
    output: BlockOutput,
    log: BlockLog,
    show: Show | None,
) -> None:
    from distributed import CancelledError
    from distributed.scheduler import KilledWorker

    job = shipment.job
    # A plugin, not scattered data: workers that replace lost ones get it as well.
    client.register_plugin(_handed_out(shipment), name=shipment.token)
    waiting, running = iter(left), dict[Any, Region]()

    def begin(count: int) -> None:
        for block in itertools.islice(waiting, count):
            # Not pure: dask must not take a block of an earlier job for this one.
            future = client.submit(
                predict_block, shipment.token, block, pure=False, retries=RETRIES
            )
            running[future] = block

    tally = Tally(job, left, log, show)
    begin(AHEAD * max(1, sum(client.nthreads().values())))
    while running:
        for future in _ended(client, list(running), shipment):
            block = running.pop(future)
            try:
                checksum = future.result()
            except KilledWorker as error:
                died = f"{error.allowed_failures + 1} dask workers died of it, one after the other"
                why = f"{died}; killed, or for want of memory"
                raise _lost(shipment, f"the block at {block.lower}", why) from None
            except CancelledError:
                why = "the dask scheduler gave it up"
                raise _lost(shipment, f"the block at {block.lower}", why) from None
            # Only what is acknowledged is in the journal; a block written twice has the same bytes.
            output.acknowledge(job.placed(block), checksum)
            tally.add(block)
            begin(1)
    with suppress(KeyError):  # of a worker that came just now: it has not got it yet
        client.unregister_worker_plugin(shipment.token)


def _ended(client: Any, running: list[Any], shipment: Shipment) -> list[Any]:
    """Return those of some futures that have ended, once one has.

    Without workers, processes of this machine will not come back: that ends the prediction. Another scheduler's may
    come at any time: that is told once.
    """
    from distributed import CancelledError, wait

    seen, told = time.monotonic(), False
    while True:
        with suppress(TimeoutError, CancelledError):
            wait(running, timeout=LOOK, return_when="FIRST_COMPLETED")
        if ended := [future for future in running if future.done()]:
            return ended
        if client.nthreads():
            seen = time.monotonic()
        elif time.monotonic() - seen >= ALONE and not told:
            if client.cluster is not None:
                why = (
                    f"no dask worker has been there for {ALONE:g} seconds; they died as they began"
                )
                raise _lost(shipment, "what is left", why)
            warnings.warn(
                f"{shipment.destination.path}: no worker is connected to the dask scheduler; waiting for one",
                stacklevel=2,
            )
            told = True


def _handed_out(shipment: Shipment) -> Any:
    """Return a plug-in that brings a shipment to all workers, also to those that replace lost ones."""
    from distributed import WorkerPlugin

    class HandedOut(WorkerPlugin):  # type: ignore[misc]
        pass

    plugin = HandedOut()
    plugin.shipment = shipment
    return plugin


def _lost(shipment: Shipment, what: str, why: str) -> ZnnpyError:
    return ZnnpyError(
        f"{shipment.destination.path}: {what} cannot be computed: {why}. Finished blocks are "
        "kept, the same command goes on"
    )
