"""Whatever was acknowledged is there after a kill; whatever was not is asked for again."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from znnpy.data.block_writer import BlockWriter
from znnpy.data.source import open_volume
from znnpy.errors import ShapeError, VolumeError

DATA = np.random.default_rng(0).normal(size=(2, 5, 6, 7)).astype(np.float32)
CORNERS = list(itertools.product((0, 3), (0, 2, 4), (0, 4)))


def block(corner: tuple[int, int, int]) -> np.ndarray:
    z, y, x = corner
    return DATA[:, z : z + 3, y : y + 2, x : x + 4]


def writer(path: Path, **options: object) -> BlockWriter:
    attributes = {"resolution": [3, 2, 1]}
    return BlockWriter(path, "volumes/affinities", DATA.shape, np.float32, attributes, **options)  # type: ignore[arg-type]


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


@pytest.mark.parametrize("lost", [0, 1, 55, 60])
def test_go_on_after_a_cut_journal(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "out.h5"
    with writer(path) as out:
        for corner in CORNERS[:5]:
            out.write(corner, block(corner))
    journal = tmp_path / "out.h5.journal"
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
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff")
    with writer(path) as out:
        assert [lower for lower, _ in out.done] == [CORNERS[1]]
    with writer(path) as out:
        assert [lower for lower, _ in out.done] == [CORNERS[1]]


def test_not_finished_while_blocks_are_missing(tmp_path: Path) -> None:
    with writer(tmp_path / "out.h5") as out:
        out.write(CORNERS[0], block(CORNERS[0]))
        with pytest.raises(VolumeError, match="24 of 210 voxels"):
            out.finish()


def test_other_settings_and_finished_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    writer(path, key="one").close()
    with pytest.raises(VolumeError, match="other settings"):
        writer(path, key="two")
    (tmp_path / "out.h5.journal").unlink()
    with pytest.raises(VolumeError, match="exists already"):
        writer(path, key="one")


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
        names = {out._file: "data", out._log: "journal"}
        for call in ("pwrite", "write", "fdatasync"):
            monkeypatch.setattr(os, call, noting(call, names, calls))
        out.write(CORNERS[0], block(CORNERS[0]))
    assert set(calls[:-3]) == {("pwrite", "data")}
    assert calls[-3:] == [("fdatasync", "data"), ("write", "journal"), ("fdatasync", "journal")]


KILLED = """
import os, signal, sys
import numpy as np
from znnpy.data import block_writer, contiguous

left = int(sys.argv[2])

def counted(call):
    def wrapped(*arguments):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments)
    return wrapped

for name in ("pwrite", "write", "fdatasync", "fsync", "posix_fallocate"):
    setattr(os, name, counted(getattr(os, name)))
data = np.arange(48, dtype=np.float32).reshape(1, 4, 3, 4)
out = block_writer.BlockWriter(sys.argv[1], "main", data.shape, np.float32)
for z in range(4):
    if ((z, 0, 0), (z + 1, 3, 4)) not in out.done:
        out.write((z, 0, 0), data[:, z : z + 1])
        sys.stdout.write(f"{z}\\n")
        sys.stdout.flush()
out.finish()
"""


@pytest.mark.slow
def test_killed_at_every_system_call(tmp_path: Path) -> None:
    """Killed before each of its writes and syncs in turn, the next run ends with the right data."""
    data = np.arange(48, dtype=np.float32).reshape(1, 4, 3, 4)
    for calls in itertools.count():
        path = tmp_path / f"{calls}.h5"
        run = [sys.executable, "-c", KILLED, str(path), str(calls)]
        killed = subprocess.run(run, capture_output=True, text=True, check=False)
        finished = path.exists() and not (tmp_path / f"{calls}.h5.journal").exists()
        assert killed.returncode in (0, -signal.SIGKILL), killed.stderr
        if not finished:
            with BlockWriter(path, "main", (1, 4, 3, 4), np.float32) as out:
                done = {lower[0] for lower, _ in out.done}
                assert {int(z) for z in killed.stdout.split()} <= done
                for z in set(range(4)) - done:
                    out.write((z, 0, 0), data[:, z : z + 1])
                out.finish()
        with open_volume(path) as volume:
            assert np.array_equal(volume.read_all(), data)
        if killed.returncode == 0:
            assert calls > 20
            break
