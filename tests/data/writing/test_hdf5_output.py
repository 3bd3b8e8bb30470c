"""Whatever was acknowledged is there after a kill; whatever was not is asked for again."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
from children import KILLED, WRITE, counted, forked

from znnpy.data.opening import open_volume
from znnpy.data.writing import flat_output
from znnpy.data.writing.block_output import Finished, OutputSpec
from znnpy.data.writing.destination import Destination, journal_of
from znnpy.data.writing.hdf5_output import Hdf5Output
from znnpy.errors import ShapeError, VolumeError

DATA = np.random.default_rng(0).normal(size=(2, 5, 6, 7)).astype(np.float32)
CORNERS = list(itertools.product((0, 3), (0, 2, 4), (0, 4)))


def block(corner: tuple[int, int, int]) -> np.ndarray:
    z, y, x = corner
    return DATA[:, z : z + 3, y : y + 2, x : x + 4]


def writer(
    path: Path,
    job: object = "one",
    block: tuple[int, int, int] = (3, 2, 4),
    overwrite: bool = False,
) -> Hdf5Output:
    kind, attributes = np.dtype(np.float32), {"resolution": [3, 2, 1]}
    spec = OutputSpec(DATA.shape, kind, block, attributes, {"weights": job})
    return Hdf5Output(Destination(path, "volumes/affinities", overwrite), spec)


def test_blocks_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    with writer(path) as out:
        for corner in CORNERS[::-1]:
            out.write(corner, block(corner))
        out.finish()
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.h5"]
    with open_volume(path) as volume:
        assert np.array_equal(volume.read_all(), DATA)
        assert volume.resolution == (3, 2, 1)


def test_attributes_that_are_no_text_are_escaped(tmp_path: Path) -> None:
    """As names of files may be."""
    path = tmp_path / "out.h5"
    spec = OutputSpec((1, 1, 1, 1), np.dtype("f4"), (1, 1, 1), {"run": "caf\udce9"}, {})
    with Hdf5Output(Destination(path, "p"), spec) as out:
        out.write((0, 0, 0), np.zeros((1, 1, 1, 1), np.float32))
        out.finish()
    with h5py.File(path) as file:
        assert file["p"].attrs["run"] == "caf\\udce9"


def test_what_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    out = writer(tmp_path / "out.h5")
    out.write(CORNERS[0], block(CORNERS[0]))
    out.discard()
    assert not list(tmp_path.iterdir())


def test_helpers_of_another_job_are_refused(tmp_path: Path) -> None:
    there, kind = Destination(tmp_path / "out.h5", "volumes/affinities"), np.dtype(np.float32)
    spec = OutputSpec(DATA.shape, kind, (3, 2, 4), {}, {"weights": "one"})
    with pytest.raises(VolumeError, match="no process is writing this output"):
        Hdf5Output(there, spec, attached=True)
    with writer(there.path):
        Hdf5Output(there, spec, attached=True).close()
        with pytest.raises(VolumeError, match=r"weights was .one., now .two."):
            Hdf5Output(there, replace(spec, job={"weights": "two"}), attached=True)


@pytest.mark.parametrize("lost", [0, 1, 55, 60])
def test_go_on_after_a_cut_journal(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "out.h5"
    with writer(path) as out:
        for corner in CORNERS[:5]:
            out.write(corner, block(corner))
    journal = tmp_path / "out.h5.partial.journal"
    content = journal.read_bytes()
    journal.write_bytes(content[: len(content) - lost])
    with writer(path) as out:
        assert len(out.done) == 5 - -(-lost // 56)
        for corner in CORNERS:
            if corner not in {lower for lower, _ in out.done}:
                out.write(corner, block(corner))
        out.finish()
    with open_volume(path) as volume:
        assert np.array_equal(volume.read_all(), DATA)


def test_damaged_block_is_not_done(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    with writer(path) as out:
        out.write(CORNERS[0], block(CORNERS[0]))
        out.write(CORNERS[1], block(CORNERS[1]))
        place = out._place
    with (tmp_path / "out.h5.partial").open("r+b") as file:
        file.seek(place)
        file.write(b"\xff")
    with writer(path) as out:
        assert [lower for lower, _ in out.done] == [CORNERS[1]]
    with writer(path) as out:
        assert [lower for lower, _ in out.done] == [CORNERS[1]]


def test_not_finished_while_blocks_are_missing(tmp_path: Path) -> None:
    with writer(tmp_path / "out.h5") as out:
        out.write(CORNERS[0], block(CORNERS[0]))
        with pytest.raises(VolumeError, match="11 of 12 blocks"):
            out.finish()


def fill(path: Path, **options: object) -> bytes:
    with writer(path, **options) as out:  # type: ignore[arg-type]
        for lower, _ in set(out.spec.blocks()) - out.done:
            out.write(lower, block(lower))
        out.finish()
    return path.read_bytes()


def test_another_job_is_refused_and_named(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    writer(path).close()
    with pytest.raises(VolumeError, match='weights was "one", now "two"'):
        writer(path, "two")
    with pytest.raises(VolumeError, match=r"block was \[3, 2, 4\], now \[5, 6, 7\]"):
        writer(path, block=(5, 6, 7))
    with writer(path, "two", overwrite=True) as out:
        assert not out.done


def test_finished_file_is_replaced_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    first = fill(path)
    with pytest.raises(VolumeError, match="exists already"):
        writer(path)
    with writer(path, overwrite=True) as out:
        out.write(CORNERS[0], block(CORNERS[0]))
        assert path.read_bytes() == first
    assert fill(path, overwrite=True) == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.h5"]


def test_second_writer_is_refused(tmp_path: Path) -> None:
    with writer(tmp_path / "out.h5") as out:
        with pytest.raises(VolumeError, match="another process"):
            writer(tmp_path / "out.h5")
        out.write(CORNERS[0], block(CORNERS[0]))
    with writer(tmp_path / "out.h5") as out:
        assert len(out.done) == 1


def test_header_that_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    writer(path).close()
    with (tmp_path / "out.h5.partial").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff\xff")
    with pytest.raises(VolumeError, match="outside its blocks"):
        writer(path)


@pytest.mark.parametrize("few", [0, 64])
@pytest.mark.parametrize("shape", [(3, 2, 7), (2, 6, 7), (5, 6, 7), (2, 6, 3), (1, 1, 1)])
def test_blocks_of_whole_rows_and_planes(
    tmp_path: Path, shape: tuple[int, int, int], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flat_output, "FEW", few)
    with writer(tmp_path / "out.h5", block=shape) as out:
        for (z, y, x), (z1, y1, x1) in out.spec.blocks():
            out.write((z, y, x), DATA[:, z:z1, y:y1, x:x1])
        out.finish()
    with open_volume(tmp_path / "out.h5") as volume:
        assert np.array_equal(volume.read_all(), DATA)


def test_rows_that_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of file sizes within a block, met by the compiled loop: one error, the rest kept."""
    monkeypatch.setattr(flat_output, "FEW", 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with writer(tmp_path / "out.h5") as out:
        out.write(CORNERS[0], block(CORNERS[0]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (out._place + 4 * 7 * 6, hard))
        try:
            with pytest.raises(OSError, match="File too large"):
                out.write(CORNERS[1], block(CORNERS[1]))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with writer(tmp_path / "out.h5") as out:
        assert [lower for lower, _ in out.done] == [CORNERS[0]]


@pytest.mark.parametrize("corner", [(3, 0, 0), (-1, 0, 0), (0, 0, 4)])
def test_block_outside(tmp_path: Path, corner: tuple[int, int, int]) -> None:
    with writer(tmp_path / "out.h5") as out, pytest.raises(ShapeError, match="does not fit"):
        out.write(corner, DATA[:, :3, :, :4])


def noting(call: str, names: dict[int, str], calls: list[tuple[str, str]]) -> Callable[..., object]:
    real = getattr(os, call)

    def noted(file: int, *rest: object) -> object:
        calls.append((call, names[file]))
        return real(file, *rest)

    return noted


def test_data_is_synced_before_the_journal_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    with writer(tmp_path / "out.h5") as out:
        names = {out._file: "data", out._journal._file: "journal"}
        for call in ("pwrite", "write", "fdatasync"):
            monkeypatch.setattr(os, call, noting(call, names, calls))
        out.write(CORNERS[0], block(CORNERS[0]))
    assert set(calls[:-3]) == {("pwrite", "data")}
    assert calls[-3:] == [("fdatasync", "data"), ("write", "journal"), ("fdatasync", "journal")]


PLANES = np.arange(48, dtype=np.float32).reshape(1, 4, 3, 4)
SPEC = OutputSpec(PLANES.shape, PLANES.dtype, (1, 3, 4))


def writing(path: Path, calls: int, pipe: int) -> None:
    """Write the four blocks of `PLANES`, tell each, and die at a call that comes after so many."""
    counted(calls)
    with Hdf5Output(Destination(path, "main"), SPEC) as out:
        for z in range(4):
            if ((z, 0, 0), (z + 1, 3, 4)) not in out.done:
                out.write((z, 0, 0), PLANES[:, z : z + 1])
                WRITE(pipe, b"%d" % z)
        out.finish()


@pytest.mark.slow
def test_killed_at_every_call(tmp_path: Path) -> None:
    """Killed before each of its calls in turn, the next run ends with the same bytes."""
    path, whole = tmp_path / "out.h5", None
    for calls in itertools.chain([1_000_000], itertools.count()):
        code, told = forked(partial(writing, path, calls))
        assert code in (0, KILLED)
        finished = path.exists() and not journal_of(path).exists()
        if not finished:
            # A file whose journal was complete is moved to its place, then found to be finished.
            with contextlib.suppress(Finished), Hdf5Output(Destination(path, "main"), SPEC) as out:
                done = {lower[0] for lower, _ in out.done}
                assert {int(z) for z in told.decode()} <= done
                for z in set(range(4)) - done:
                    out.write((z, 0, 0), PLANES[:, z : z + 1])
                out.finish()
        whole = whole or path.read_bytes()
        assert path.read_bytes() == whole
        assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
        path.unlink()
        if calls < 1_000_000 and code == 0:
            assert calls > 20
            assert finished
            break
