"""What a worker of a prediction over processes does with jobs and blocks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from jobs import small

from znnpy.data.scene import Scene
from znnpy.data.writing.block_output import open_output
from znnpy.data.writing.destination import Destination
from znnpy.errors import VolumeError
from znnpy.infer import dask_prediction
from znnpy.infer.dask_prediction import predict_block

BLOCK = (2, 5, 5)


def test_attached_output_only_puts(tmp_path: Path) -> None:
    tiny = small(tmp_path, threads=1)
    whole = tiny.run("one.h5", block=BLOCK)
    with tiny.scene().reference as volume:
        job, path = tiny.job(Scene({"input": volume}, {}), block=BLOCK), tmp_path / "out.h5"
        there = Destination(path, "p")
        with pytest.raises(VolumeError, match="no process is writing"):
            open_output(there, job.spec, attached=True)
        with (
            open_output(there, job.spec) as output,
            open_output(there, job.spec, attached=True) as helper,
        ):
            for lower, upper in job.spec.blocks():
                z, y, x = (slice(a, b) for a, b in zip(lower, upper, strict=True))
                output.acknowledge((lower, upper), helper.put(lower, whole[:, z, y, x]))
            output.finish()
    assert path.read_bytes() == (tmp_path / "one.h5").read_bytes()


class Computing:
    """A worker of a job whose blocks take until they are let go."""

    def __init__(self, shipment: SimpleNamespace) -> None:
        self.token, self.given = shipment.token, shipment
        self.users, self.closed = list[object](), False
        shipment.made.append(self)
        if shipment.broken:
            raise VolumeError("cannot be read")

    def block(self, block: object) -> int:
        assert not self.closed
        self.users.append(block)
        self.given.begun.release()
        assert self.given.end.wait(300)
        assert not self.closed
        self.users.pop()
        return len(self.given.made)

    def close(self) -> None:
        assert not self.users
        self.closed = True


def shipped(token: str, *, ended: bool = False, broken: bool = False) -> SimpleNamespace:
    end = threading.Event()
    if ended:
        end.set()
    begun = threading.Semaphore(0)
    return SimpleNamespace(token=token, begun=begun, end=end, made=[], broken=broken)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Callable[[SimpleNamespace], int]:
    """Computes a block of a job as a thread of a worker does."""
    jobs: dict[str, SimpleNamespace] = {}
    worker = SimpleNamespace(plugins=jobs)
    distributed = SimpleNamespace(get_worker=lambda: worker)
    monkeypatch.setitem(sys.modules, "distributed", distributed)
    monkeypatch.setattr(dask_prediction, "_Worker", Computing)
    monkeypatch.setattr(dask_prediction, "_current", None)

    def compute(shipment: SimpleNamespace) -> int:
        jobs[shipment.token] = SimpleNamespace(shipment=shipment)
        return predict_block(shipment.token, ((0, 0, 0), (1, 1, 1)))

    return compute


def test_a_second_job_waits_until_no_thread_computes_for_the_first(
    process: Callable[[SimpleNamespace], int],
) -> None:
    first, second = shipped("first"), shipped("second", ended=True)
    with ThreadPoolExecutor(3) as pool:
        blocks = [pool.submit(process, first) for _ in range(2)]
        for _ in blocks:
            assert first.begun.acquire(timeout=300)
        other = pool.submit(process, second)
        try:
            assert not second.begun.acquire(timeout=0.2)
            assert not first.made[0].closed
        finally:
            first.end.set()
        assert [block.result(300) for block in blocks] == [1, 1]
        assert other.result(300) == 1
    assert first.made[0].closed
    assert not second.made[0].closed
    assert process(first) == 2


def test_a_job_that_cannot_begin_holds_up_no_other(
    process: Callable[[SimpleNamespace], int],
) -> None:
    first, broken = shipped("first", ended=True), shipped("broken", broken=True)
    assert process(first) == 1
    for _ in range(2):
        with pytest.raises(VolumeError, match="cannot be read"):
            process(broken)
    assert first.made[0].closed
    assert process(first) == 2
