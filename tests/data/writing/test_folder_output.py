"""Folders of chunks, whatever their format: resumed and damaged ones, coarser levels, what is refused."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import forked
from chunk_blocks import files, spec_of, values, write_blocks

from znnpy.data.opening import open_volume
from znnpy.data.writing import pyramid
from znnpy.data.writing.block_output import open_output
from znnpy.data.writing.destination import Destination, partial_of
from znnpy.data.writing.folder_output import FolderOutput
from znnpy.errors import ShapeError, VolumeError

BLOCK = (4, 8, 8)
SUFFIXES = (".zarr", ".n5", ".precomputed")
suffixes = pytest.mark.parametrize("suffix", SUFFIXES)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels of small images."""
    monkeypatch.setattr(pyramid, "ENOUGH", 6)


@suffixes
@pytest.mark.parametrize("done", [0, 1, 5, 12])
def test_goes_on_to_the_same_bytes(suffix: str, done: int, tmp_path: Path, few: None) -> None:
    array = values((2, 5, 20, 17), "u2")
    # Names of images are in Zarr's metadata.
    (tmp_path / "other").mkdir()
    whole = files(write_blocks(tmp_path / "other" / f"out{suffix}", array, BLOCK))
    path = tmp_path / f"out{suffix}"
    write_blocks(path, array, BLOCK, done)
    assert not path.exists()
    write_blocks(path, array, BLOCK)
    assert files(path) == whole
    assert not partial_of(path).exists()


@suffixes
@pytest.mark.parametrize("shape", [(2, 5, 20, 17), (1, 9, 16, 16), (1, 1, 30, 3)])
def test_levels_are_means_of_the_one_before(
    suffix: str, shape: Any, tmp_path: Path, few: None
) -> None:
    array = values(shape, "f4")
    path = write_blocks(tmp_path / f"out{suffix}", array, BLOCK)
    levels = pyramid.levels_of(shape, (40.0, 8.0, 4.0))
    assert len(levels) > 1
    wanted = array
    for number, described in enumerate(levels):
        wanted = pyramid.coarser(wanted, described.step, labels=False) if number else wanted
        with open_volume(f"{path}:{path_of(path, number, described)}") as volume:
            np.testing.assert_array_equal(volume.read_all(), wanted)
            assert volume.resolution == described.resolution((40.0, 8.0, 4.0))
    with open_volume(path) as volume:  # the finest is meant
        assert volume.shape == shape
        assert volume.offset == (80, -16, 12)


def path_of(path: Path, number: int, described: Any) -> str:
    x, y, z = described.resolution((40.0, 8.0, 4.0))[::-1]
    return {".zarr": str(number), ".n5": f"s{number}"}.get(path.suffix, f"{x:g}_{y:g}_{z:g}")


@suffixes
def test_levels_of_labels_are_labels(suffix: str, tmp_path: Path, few: None) -> None:
    array = values((1, 5, 20, 17), "u4") * 1000
    path = write_blocks(tmp_path / f"out{suffix}", array, BLOCK, channels=False)
    described = pyramid.levels_of(array.shape, (40.0, 8.0, 4.0))[1]
    with open_volume(f"{path}:{path_of(path, 1, described)}") as volume:
        z, y, x = described.step
        np.testing.assert_array_equal(volume.read_all(), array[:, ::z, ::y, ::x])


@suffixes
def test_a_killed_process_loses_no_block(suffix: str, tmp_path: Path, few: None) -> None:
    array = values((1, 5, 20, 17), "u2")
    (tmp_path / "other").mkdir()
    whole = files(write_blocks(tmp_path / "other" / f"out{suffix}", array, BLOCK))
    path = tmp_path / f"out{suffix}"

    def die(_: int) -> None:
        """Within the levels, when some of them are written."""
        store, count = FolderOutput._store, [0]

        def stored(self: Any, number: int, *rest: Any) -> int:
            count[0] += number > 0
            if count[0] == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return store(self, number, *rest)

        FolderOutput._store = stored  # type: ignore[method-assign]
        write_blocks(path, array, BLOCK)

    assert forked(die)[0] == -signal.SIGKILL
    assert not path.exists()
    with open_output(Destination(path, ""), spec_of(array, BLOCK)) as out:
        assert len(out.done) == len(out.spec.blocks())
        out.finish()
    assert files(path) == whole


@suffixes
def test_damaged_chunks_are_not_done(suffix: str, tmp_path: Path) -> None:
    array, path = values((1, 5, 20, 17), "u2"), tmp_path / f"out{suffix}"
    write_blocks(path, array, BLOCK, 3)
    spec = spec_of(array, BLOCK)
    with open_output(Destination(path, ""), spec) as out:
        first, second, third = sorted(out.done)
        places = [partial_of(path) / next(out._files(0, it))[0] for it in (first, second)]
    places[0].write_bytes(places[0].read_bytes()[:-1] + b"x")
    places[1].unlink()
    with open_output(Destination(path, ""), spec) as out:
        assert out.done == {third}


@suffixes
def test_off_grid_blocks_and_other_jobs_are_refused(suffix: str, tmp_path: Path) -> None:
    array, path = values((1, 5, 20, 17), "u2"), tmp_path / f"out{suffix}"
    with (
        open_output(Destination(path, ""), spec_of(array, BLOCK)) as out,
        pytest.raises(ShapeError, match="blocks are of"),
    ):
        out.write((1, 0, 0), array[:, 1:3, :4, :4])
    with pytest.raises(VolumeError, match="block was"):
        write_blocks(path, array, (5, 8, 8))
    with pytest.raises(ShapeError, match="2 channels for an array"):
        write_blocks(tmp_path / f"b{suffix}", values((2, 5, 6, 7), "u2"), BLOCK, channels=False)


@suffixes
def test_another_folder_is_not_replaced(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{suffix}"
    path.mkdir()
    (path / "own.txt").write_text("mine")
    with pytest.raises(VolumeError, match="is a folder"):
        write_blocks(path, values((1, 5, 6, 7), "u2"), BLOCK)
    assert (path / "own.txt").exists()
