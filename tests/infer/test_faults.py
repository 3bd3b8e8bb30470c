"""A prediction that is killed at any call, or whose disk fails, loses no block that was finished."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from jobs import Small, small

from znnpy.data.journal import Journal
from znnpy.data.outputs import Finished, journal_of, open_output
from znnpy.data.scene import Scene
from znnpy.errors import VolumeError, ZnnpyError
from znnpy.infer.write import run_job

BLOCK = (2, 5, 5)  # 5 x 4 x 4 blocks
MEMORY = Path("/dev/shm")  # syncs cost nothing there, and a killed process is no lost power
CALLS = ("open", "pwrite", "write", "fdatasync", "fsync", "posix_fallocate", "ftruncate")
MOVES = ("rename", "replace", "unlink")
KILLED = 137
WRITE = os.write


def counted(limit: int) -> list[int]:
    """From now on this process ends at its call number `limit` to the disk."""
    calls = [0]

    def wrap(call: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object, **more: object) -> object:
            calls[0] += 1
            if calls[0] > limit:
                os._exit(KILLED)
            return call(*arguments, **more)

        return wrapped

    for name in (*CALLS, *MOVES):
        setattr(os, name, wrap(getattr(os, name)))
    return calls


def forked(work: Callable[[int], None]) -> tuple[int, bytes]:
    """Run in a child, which gets a pipe; its exit status and what it wrote into the pipe."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            work(into)
            code = 0
        os._exit(code)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        said = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def predict(tiny: Small, name: str, said: int | None = None, limit: int | None = None) -> None:
    """Predict to a file; each finished block is a byte in the pipe."""
    with tiny.scene().reference as volume:
        job = tiny.job(Scene({"input": volume}, {}), name, block=BLOCK)
        calls = counted(limit) if limit is not None else [0]
        show = (lambda _: WRITE(said, b".") and None) if said is not None else None
        run_job(job, tiny.folder / name, "p", show=show)
        if said is not None:
            WRITE(said, b"!" + str(calls[0]).encode())


def killed_at(tiny: Small, number: int, whole: bytes) -> bool:
    """Kill at a call, look, finish, compare; whether it came to its end before."""
    path = tiny.folder / f"{number}.h5"
    code, said = forked(lambda pipe: predict(tiny, path.name, pipe, number))
    assert code in (0, KILLED)
    if code == KILLED and not path.exists():
        journal = Journal(journal_of(path))
        assert len(journal.done) >= said.count(b".")
        journal.close()
    if not path.exists() or journal_of(path).exists():
        assert forked(lambda pipe: predict(tiny, path.name))[0] == 0
    assert path.read_bytes() == whole
    assert not list(tiny.folder.glob(f"{number}.h5.partial*"))
    for left in (path, path.with_name(f"{path.name}.log.jsonl")):
        left.unlink()
    return code == 0


@pytest.fixture(scope="module")
def warm() -> Iterator[Small]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        found = small(Path(folder), threads=1)
        predict(found, "warm.h5")  # kernels are compiled and loaded
        yield found


@pytest.fixture
def tiny(warm: Small) -> Iterator[Small]:
    yield warm
    for left in warm.folder.glob("*out.h5*"):
        left.unlink()


def points(step: int) -> Iterator[int]:
    yield from range(0, 12)
    yield from range(12, 100_000, step)


@pytest.mark.parametrize("step", [151, pytest.param(13, marks=pytest.mark.slow)])
def test_killed_at_any_call(tiny: Small, step: int) -> None:
    whole = (tiny.folder / "warm.h5").read_bytes()
    for number in points(step):
        if killed_at(tiny, number, whole):
            assert number > 4 * 80
            return


def test_killed_around_the_end(tiny: Small) -> None:
    """The last calls: all is written, the file is moved, the journal goes."""
    whole = (tiny.folder / "warm.h5").read_bytes()
    code, said = forked(lambda pipe: predict(tiny, "count.h5", pipe, 1_000_000))
    calls = int(said.rpartition(b"!")[2])
    assert code == 0
    for number in range(calls - 12, calls + 1):
        killed_at(tiny, number, whole)


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
            predict(tiny, "out.h5")
    journal = Journal(journal_of(tiny.folder / "out.h5"))
    done = len(journal.done)
    journal.close()
    assert done > 2
    predict(tiny, "out.h5")
    assert (tiny.folder / "out.h5").read_bytes() == (tiny.folder / "warm.h5").read_bytes()


def test_full_disk_leaves_nothing_behind(tiny: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(VolumeError, match="no room on the disk"):
            predict(tiny, "out.h5")
    assert not list(tiny.folder.glob("*out.h5*"))


def test_second_writer_is_refused(tiny: Small) -> None:
    with tiny.scene().reference as volume:
        job = tiny.job(Scene({"input": volume}, {}), block=BLOCK)
        with (
            open_output(tiny.folder / "out.h5", "p", job.spec),
            pytest.raises(VolumeError, match="another process"),
        ):
            run_job(job, tiny.folder / "out.h5", "p")


def test_finished_is_reported_once(tiny: Small) -> None:
    """A kill after the last block and before the move leaves only the move to do."""
    path = tiny.folder / "out.h5"
    with tiny.scene().reference as volume:
        job = tiny.job(Scene({"input": volume}, {}), block=BLOCK)
        run_job(job, path, "p")
        whole = path.read_bytes()
        path.rename(path.with_name("out.h5.partial"))
        journal = Journal(journal_of(path))
        journal.begin(job.spec.head("p"))
        journal.complete()
        journal.close()
        with pytest.raises(Finished):
            open_output(path, "p", job.spec)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("seed", range(2))
def test_mutated_partials_give_an_error_or_exact_data(tiny: Small, seed: int) -> None:
    """Bytes of a begun output or its journal change, or its end is lost."""
    rng, whole = np.random.default_rng(seed), (tiny.folder / "warm.h5").read_bytes()
    assert forked(lambda pipe: predict(tiny, "out.h5", pipe, 250))[0] == KILLED
    names = ["out.h5.partial", "out.h5.partial.journal"]
    begun = {name: (tiny.folder / name).read_bytes() for name in names}
    for _ in range(25):
        for name, content in begun.items():
            (tiny.folder / name).write_bytes(content)
        name = names[int(rng.integers(2))]
        content = bytearray(begun[name])
        for place in rng.integers(0, len(content), int(rng.integers(1, 4))):
            content[place] = int(rng.integers(256))
        cut = int(rng.integers(len(content))) if rng.random() < 0.3 else len(content)
        (tiny.folder / name).write_bytes(content[:cut])
        try:
            predict(tiny, "out.h5")
        except ZnnpyError:
            continue
        assert (tiny.folder / "out.h5").read_bytes() == whole
        (tiny.folder / "out.h5").unlink()
    with h5py.File(tiny.folder / "warm.h5") as file:
        assert file["p"].shape == (2, 9, 17, 19)
