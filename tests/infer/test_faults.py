"""A prediction that is killed at any call, or whose disk fails, loses no block that was finished."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from children import KILLED, WRITE, counted, forked
from jobs import Small, small
from killing import (
    content,
    killed_and_continued,
    planned,
    predict,
    remove,
)
from znnpy_kernels.machine.cache import CacheError

from znnpy.data.scene import Scene
from znnpy.data.writing import flat_output
from znnpy.data.writing.block_output import Finished, open_output
from znnpy.data.writing.destination import Destination, journal_of
from znnpy.data.writing.journal import Journal
from znnpy.errors import VolumeError, ZnnpyError
from znnpy.infer.block_writer import run_job

BLOCK = (2, 5, 5)  # 5 x 4 x 4 blocks
MEMORY = Path("/dev/shm")  # syncs cost nothing there, and a killed process is no lost power


def killed_at(tiny: Small, number: int, whole: dict[str, bytes]) -> bool:
    """Kill at a call that Python makes, look, finish, compare; whether it came to its end before."""
    with planned(tiny, "out.h5", block=BLOCK) as prediction:
        return killed_and_continued(prediction, lambda: counted(number), whole)


@pytest.fixture(scope="module")
def warm() -> Iterator[Small]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        found = small(Path(folder), threads=1)
        predict(found, "warm.h5", block=BLOCK)  # kernels are compiled and loaded
        yield found


@pytest.fixture
def tiny(warm: Small) -> Iterator[Small]:
    yield warm
    for left in warm.folder.glob("*out.h5*"):
        left.unlink()


@pytest.mark.slow
def test_killed_at_some_calls(tiny: Small) -> None:
    """`test_every_call` takes all of them."""
    whole = content(tiny.folder / "warm.h5")
    for number in (*range(12), *range(12, 100_000, 301)):
        if killed_at(tiny, number, whole):
            assert number > 4 * 80
            return


@pytest.mark.slow
def test_killed_around_the_end(tiny: Small) -> None:
    """The last calls: all is written, the file is moved, the journal goes."""
    whole = content(tiny.folder / "warm.h5")

    def count(pipe: int) -> None:
        calls: list[list[int]] = []
        predict(tiny, "out.h5", None, lambda: calls.append(counted(1_000_000)), block=BLOCK)
        WRITE(pipe, str(calls[0][0]).encode())

    code, said = forked(count)
    calls = int(said)
    assert code == 0
    remove(tiny.folder / "out.h5")
    for number in range(calls - 12, calls + 1):
        killed_at(tiny, number, whole)


@pytest.mark.quick(2)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_failing_disk_is_one_error_and_keeps_blocks(
    tiny: Small, monkeypatch: pytest.MonkeyPatch, code: int, call: str
) -> None:
    real, calls = getattr(os, call), [0]

    def failing(*arguments: object) -> object:
        calls[0] += 1
        if calls[0] > 60:
            raise OSError(code, os.strerror(code))
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing)
        with pytest.raises(VolumeError, match=f"out.h5 cannot be written: {os.strerror(code)}"):
            predict(tiny, "out.h5", block=BLOCK)
    journal = Journal(journal_of(tiny.folder / "out.h5"))
    done = len(journal.done)
    journal.close()
    assert done > 2
    predict(tiny, "out.h5", block=BLOCK)
    assert (tiny.folder / "out.h5").read_bytes() == (tiny.folder / "warm.h5").read_bytes()


def test_an_unusable_kernel_cache_is_no_fault_of_the_output(
    tiny: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unusable() -> None:
        raise CacheError("kernel cache x cannot be used")

    monkeypatch.setattr(flat_output, "write_rows", SimpleNamespace(compile=unusable))
    with pytest.raises(CacheError, match="kernel cache x cannot be used"):
        predict(tiny, "out.h5", block=BLOCK)


def test_full_disk_leaves_nothing_behind(tiny: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(VolumeError, match="no room on the disk"):
            predict(tiny, "out.h5", block=BLOCK)
    assert not list(tiny.folder.glob("*out.h5*"))


def test_second_writer_is_refused(tiny: Small) -> None:
    there = Destination(tiny.folder / "out.h5", "p")
    with tiny.scene().reference as volume:
        job = tiny.job(Scene({"input": volume}, {}), block=BLOCK)
        with (
            open_output(there, job.spec),
            pytest.raises(VolumeError, match="another process"),
        ):
            run_job(job, there)


def test_finished_is_reported_once(tiny: Small) -> None:
    """A kill after the last block and before the move leaves only the move to do."""
    path = tiny.folder / "out.h5"
    with tiny.scene().reference as volume:
        job = tiny.job(Scene({"input": volume}, {}), block=BLOCK)
        run_job(job, Destination(path, "p"))
        whole = path.read_bytes()
        path.rename(path.with_name("out.h5.partial"))
        journal = Journal(journal_of(path))
        journal.begin(job.spec.head("p"))
        journal.complete()
        journal.close()
        with pytest.raises(Finished):
            open_output(Destination(path, "p"), job.spec)
    assert path.read_bytes() == whole


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_mutated_partials_give_an_error_or_exact_data(tiny: Small, seed: int) -> None:
    """Bytes of a begun output or its journal change, or its end is lost."""
    rng, whole = np.random.default_rng(seed), (tiny.folder / "warm.h5").read_bytes()
    assert (
        forked(lambda _: predict(tiny, "out.h5", arm=lambda: counted(250), block=BLOCK))[0]
        == KILLED
    )
    names = ["out.h5.partial", "out.h5.partial.journal"]
    begun = {name: (tiny.folder / name).read_bytes() for name in names}
    for _ in range(25):
        for name, before in begun.items():
            (tiny.folder / name).write_bytes(before)
        name = names[int(rng.integers(2))]
        data = bytearray(begun[name])
        for place in rng.integers(0, len(data), int(rng.integers(1, 4))):
            data[place] = int(rng.integers(256))
        cut = int(rng.integers(len(data))) if rng.random() < 0.3 else len(data)
        (tiny.folder / name).write_bytes(data[:cut])
        try:
            predict(tiny, "out.h5", block=BLOCK)
        except ZnnpyError:
            continue
        assert (tiny.folder / "out.h5").read_bytes() == whole
        (tiny.folder / "out.h5").unlink()
    with h5py.File(tiny.folder / "warm.h5") as file:
        assert file["p"].shape == (2, 9, 17, 19)
