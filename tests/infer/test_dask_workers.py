"""Many processes give the bytes of one; one is killed, dies of a block, or finds a change. They begin once for all."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from changes import CHANGES
from jobs import EXTENT, Small, small
from killing import content, predict, remove

from znnpy.config.models import VolumeSection
from znnpy.data.scene import Scene
from znnpy.data.writing.destination import Destination, journal_of, partial_of
from znnpy.errors import VolumeError, ZnnpyError
from znnpy.infer import dask_prediction, tiling
from znnpy.infer.block_writer import Done
from znnpy.infer.dask_cluster import cluster
from znnpy.infer.dask_prediction import run_distributed

pytestmark = pytest.mark.slow
BLOCK = (2, 5, 5)


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    pytest.importorskip("distributed")
    with cluster("local:2") as client:
        yield client


@pytest.fixture
def client(running: Any) -> Any:
    """Of two workers; one that the test before has killed is replaced."""
    running.wait_for_workers(2, timeout=300)  # a test that failed may have left none
    return running


def over(
    client: Any,
    tiny: Small,
    path: Path,
    show: Callable[[Done], object] = lambda _: None,
    block: tuple[int, int, int] = BLOCK,
) -> None:
    """A prediction by the workers."""
    section = VolumeSection.model_validate({"image": f"{tiny.folder / 'raw.h5'}:raw"})
    with tiny.scene().reference as volume:
        job = tiny.job(Scene({"input": volume}, {}), path.name, block=block)
        run_distributed(client, job, section, Destination(path, "p"), show)


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_one_killed(client: Any, tmp_path: Path, suffix: str) -> None:
    tiny, path, killed = small(tmp_path, threads=1), tmp_path / f"out{suffix}", list[int]()
    predict(tiny, path.name, block=BLOCK)
    whole = content(path)
    remove(path)
    workers = client.run(os.getpid)
    assert len(workers) == 2

    def show(done: object) -> None:
        if not killed:
            killed.append(next(iter(workers.values())))
            os.kill(killed[0], signal.SIGKILL)

    over(client, tiny, path, show)
    assert killed
    assert content(path) == whole
    assert not journal_of(path).exists()


def test_windows(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiling, "patch_dependence", lambda network: "so the test says")
    tiny, path = small(tmp_path, threads=1, inference={"window": (4, 5, 6)}), tmp_path / "out.h5"
    predict(tiny, path.name, block=BLOCK)
    whole = content(path)
    remove(path)
    over(client, tiny, path)
    assert content(path) == whole


def test_a_worker_that_comes_when_all_is_done(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked to forget a job that it has not got yet."""

    def without(token: str) -> None:
        raise KeyError(token)

    monkeypatch.setattr(client, "unregister_worker_plugin", without)
    over(client, small(tmp_path, threads=1), tmp_path / "out.h5")
    assert (tmp_path / "out.h5").exists()


def test_a_volume_that_changes(client: Any, tmp_path: Path) -> None:
    tiny, blocks = small(tmp_path, threads=1), list[object]()
    with tiny.scene().reference as volume:
        whole = len(tiny.job(Scene({"input": volume}, {}), block=(2, 3, 3)).order)

    def show(done: Done) -> None:
        if not blocks:
            CHANGES["rewritten"](tmp_path / "raw.h5")
        blocks.append(done.blocks)

    with pytest.raises(VolumeError, match=r"has changed while it was read|is another file"):
        over(client, tiny, tmp_path / "out.h5", show, block=(2, 3, 3))
    assert not (tmp_path / "out.h5").exists()
    assert len(blocks) < whole


def die(*_: object) -> None:
    """In place of what a worker does with a block."""
    # One that dies before dask knows that it has started is not replaced.
    time.sleep(1)
    os._exit(9)


def test_workers_that_die_of_one_block(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny, path = small(tmp_path, threads=1), tmp_path / "out.h5"
    with monkeypatch.context() as patched:
        patched.setattr(dask_prediction, "predict_block", die)
        with pytest.raises(ZnnpyError, match="4 dask workers died of it") as said:
            over(client, tiny, path, block=EXTENT)  # others would die beside it
    assert "\n" not in str(said.value)
    assert said.value.__suppress_context__
    assert partial_of(path).exists()


def test_no_worker_is_left(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny, path = small(tmp_path, threads=1), tmp_path / "out.h5"
    monkeypatch.setattr(dask_prediction, "LOOK", 0.1)
    monkeypatch.setattr(dask_prediction, "ALONE", 0.2)
    own = client.cluster
    own.scale(0)
    while client.nthreads():  # else they could finish before they go
        time.sleep(0.05)
    with pytest.raises(ZnnpyError, match="what is left cannot be computed: no dask worker"):
        over(client, tiny, path)
    # Of another's scheduler new workers may come.
    monkeypatch.setattr(client, "cluster", None)
    threading.Timer(1, own.scale, [2]).start()
    with pytest.warns(UserWarning, match="no worker is connected to the dask scheduler"):
        over(client, tiny, path)
    assert path.exists()
