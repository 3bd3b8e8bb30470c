"""A Zarr image written block by block: what was acknowledged stays, and other readers understand it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr_blocks import DATA, Triple, fill, spec, writer

from znnpy.data.opening import open_volume
from znnpy.data.writing import pyramid
from znnpy.data.writing.block_output import OutputSpec, open_output
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.zarr_output import ZarrOutput, write_zarr
from znnpy.errors import ShapeError, VolumeError


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def finished(path: Path, **named: object) -> dict[str, bytes]:
    with writer(path, **named) as out:  # type: ignore[arg-type]
        fill(out)
        out.finish()
    return files(path)


def test_read_by_zarr_and_by_znnpy(tmp_path: Path) -> None:
    path = tmp_path / "out.zarr"
    found = finished(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.zarr"]
    assert sum(name.startswith("0/c/0/") for name in found) == 2 * 3 * 2
    group = zarr.open_group(path, mode="r")
    assert np.array_equal(group["0"][:], DATA)
    assert group["0"].attrs["offsets"] == [[-1, 0, 0], [0, -2, 0]]
    image = group.attrs["ome"]["multiscales"][0]
    assert group.attrs["ome"]["version"] == "0.5"
    assert [(axis["name"], axis["type"]) for axis in image["axes"]] == [
        ("c", "channel"), ("z", "space"), ("y", "space"), ("x", "space"),
    ]  # fmt: skip
    assert image["datasets"][0]["coordinateTransformations"] == [
        {"type": "scale", "scale": [1, 40, 8, 4]},
        {"type": "translation", "translation": [0, 0, -8, 12]},
    ]
    with open_volume(path) as volume:
        assert np.array_equal(volume.read_all(), DATA)
        assert (volume.resolution, volume.offset) == ((40, 8, 4), (0, -8, 12))
        assert volume.neighbours == ((-1, 0, 0), (0, -2, 0))
        assert volume.first_class == 3


def test_named_image_within_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "out.zarr"
    out = open_output(Destination(path, "volumes/affinities"), spec())
    assert isinstance(out, ZarrOutput)
    with out:
        fill(out)
        out.finish()
    with open_volume(path) as volume:
        assert volume.name.endswith(":volumes/affinities/0")
        assert np.array_equal(volume.read_all(), DATA)
    for bad in ("../x", "a//b", "a/.."):
        with pytest.raises(VolumeError, match="no path inside"):
            open_output(Destination(tmp_path / "b.zarr", bad), spec())


@pytest.mark.parametrize("done", [0, 1, 7, 12])
def test_goes_on_to_the_same_bytes(tmp_path: Path, done: int) -> None:
    whole = finished(tmp_path / "whole.zarr")
    path = tmp_path / "out.zarr"
    with writer(path) as out:
        fill(out, done)
    assert not path.exists()
    with writer(path) as out:
        assert len(out.done) == done
        fill(out)
        out.finish()
    name = path.stem.encode()
    assert {k: v.replace(b'"whole"', b'"%s"' % name) for k, v in whole.items()} == files(path)


def test_damaged_or_missing_shard_is_not_done(tmp_path: Path) -> None:
    path = tmp_path / "out.zarr"
    with writer(path) as out:
        fill(out, 3)
        first, second, third = sorted(out.done)
        files = [name for region in (first, second) for name, _ in out._files(0, region)]
    places = [tmp_path / "out.zarr.partial" / name for name in files]
    places[0].write_bytes(places[0].read_bytes()[:-1] + b"x")
    places[1].unlink()
    with writer(path) as out:
        assert out.done == {third}


def test_changed_metadata_and_other_jobs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.zarr"
    writer(path).close()
    with pytest.raises(VolumeError, match='weights was "one", now "two"'):
        writer(path, job="two")
    with pytest.raises(VolumeError, match="block was"):
        writer(path, block=(5, 6, 7))
    with writer(path) as out, pytest.raises(VolumeError, match="another process"):
        writer(path)
    del out
    (tmp_path / "out.zarr.partial/0/zarr.json").write_text("{}")
    with pytest.raises(VolumeError, match="outside its blocks"):
        writer(path)
    with writer(path, overwrite=True, job="two") as out:
        assert not out.done


def test_finished_folder_is_replaced_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "out.zarr"
    first = finished(path)
    with pytest.raises(VolumeError, match="exists already"):
        writer(path)
    with writer(path, overwrite=True) as out:
        fill(out, 1)
        assert files(path) == first
    (tmp_path / ".out.zarr.old" / "c").mkdir(parents=True)  # left where a process was killed
    assert finished(path, overwrite=True) == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.zarr"]


def test_other_folders_and_files_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / "thesis.txt").write_text("years of work")
    with pytest.raises(VolumeError, match="is a folder"):
        writer(tmp_path / "a.zarr", overwrite=True)
    (tmp_path / "b.zarr").write_text("a file")
    with pytest.raises(VolumeError, match="is a file"):
        writer(tmp_path / "b.zarr", overwrite=True)
    (tmp_path / "c.zarr.partial").mkdir()
    with pytest.raises(VolumeError, match="in the way"):
        writer(tmp_path / "c.zarr", overwrite=True)
    assert (tmp_path / "a.zarr" / "thesis.txt").exists()


@pytest.mark.parametrize("lower", [(1, 0, 0), (0, 2, 3), (-3, 0, 0), (3, 4, 8)])
def test_blocks_off_the_grid(tmp_path: Path, lower: Triple) -> None:
    with writer(tmp_path / "out.zarr") as out, pytest.raises(ShapeError):
        out.write(lower, DATA[:, :1, :1, :1])


def test_chunks_divide_blocks(tmp_path: Path) -> None:
    data = np.arange(3 * 128 * 100).reshape(1, 3, 128, 100).astype(np.uint16)
    whole = OutputSpec((1, 3, 128, 100), data.dtype, (3, 128, 100))
    with ZarrOutput(Destination(tmp_path / "a.zarr", ""), whole) as out:
        out.write((0, 0, 0), data)
        out.finish()
    metadata = json.loads((tmp_path / "a.zarr/0/zarr.json").read_text())
    assert metadata["codecs"][0]["configuration"]["chunk_shape"] == [1, 3, 64, 50]
    with open_volume(tmp_path / "a.zarr") as volume:
        assert np.array_equal(volume.read_all(), data)


@pytest.mark.parametrize("value", [0, 255])
def test_constant_blocks(tmp_path: Path, value: int) -> None:
    """255 is the fill value, which zarr does not write."""
    whole = OutputSpec((1, 4, 8, 4), np.dtype(np.uint8), (4, 4, 4))
    data = np.full((1, 4, 8, 4), value, np.uint8)
    data[:, :, 4:] = 1
    for lower in ((0, 0, 0), (0, 4, 0)):
        with ZarrOutput(Destination(tmp_path / "a.zarr", ""), whole) as out:
            assert len(out.done) == lower[1] // 4
            out.write(lower, data[:, :, lower[1] : lower[1] + 4])
            if lower[1]:
                out.finish()
    with open_volume(tmp_path / "a.zarr") as volume:
        assert np.array_equal(volume.read_all(), data)


def test_lost_shard_of_floats_is_seen(tmp_path: Path) -> None:
    finished(tmp_path / "a.zarr")
    (tmp_path / "a.zarr/0/c/0/1/2/1").unlink()
    with open_volume(tmp_path / "a.zarr") as volume, pytest.raises(VolumeError, match="nan"):
        volume.read_all()


def test_array_in_memory(tmp_path: Path) -> None:
    labels = np.arange(4 * 5 * 6, dtype=np.uint64).reshape(4, 5, 6)
    there = Destination(tmp_path / "a.zarr", "")
    write_zarr(there, labels, {"resolution": np.array([4.0, 4, 4])}, block=(2, 5, 4))
    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert np.array_equal(group["0"][:], labels)
    assert [a["name"] for a in group.attrs["ome"]["multiscales"][0]["axes"]] == ["z", "y", "x"]
    with pytest.raises(VolumeError, match="exists already"):
        write_zarr(there, labels)
    write_zarr(replace(there, overwrite=True), labels + 1)
    assert np.array_equal(zarr.open_array(tmp_path / "a.zarr/0")[:], labels + 1)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.zarr"]


CHILD = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from zarr_blocks import fill, writer
with writer(Path(sys.argv[1])) as out:
    for _ in out.spec.blocks():
        fill(out, 1)
        print(len(out.done), flush=True)
"""


@pytest.mark.slow
def test_killed_process(tmp_path: Path) -> None:
    path = tmp_path / "out.zarr"
    words = [sys.executable, "-c", CHILD, str(path), str(Path(__file__).parent)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for _ in range(5):
            seen = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
    with writer(path) as out:
        assert len(out.done) >= seen
        fill(out)
        out.finish()
    with open_volume(path) as volume:
        assert np.array_equal(volume.read_all(), DATA)


@pytest.mark.parametrize("cut", ["old aside", "moved"])
def test_killed_while_moving(tmp_path: Path, cut: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.zarr"
    first = finished(path)
    real, calls = Path.rename, []

    def stop(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == (2 if cut == "old aside" else 3):
            raise KeyboardInterrupt
        return real(self, target)

    out = writer(path, overwrite=True)
    fill(out)
    monkeypatch.setattr(Path, "rename", stop)
    if cut == "old aside":
        with out, pytest.raises(KeyboardInterrupt):
            out.finish()
    else:
        with out:
            out.finish()
    monkeypatch.undo()
    if cut == "old aside":
        assert not path.exists()
        with pytest.raises(VolumeError, match="finished by an earlier process"):
            writer(path)
    assert files(path) == first


def test_levels_say_their_size_and_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyramid, "ENOUGH", 6)
    path = tmp_path / "out.zarr"
    finished(path)
    group = zarr.open_group(path, mode="r")
    levels = group.attrs["ome"]["multiscales"][0]["datasets"]
    # Voxels of 40 x 8 x 4 nm; of two along x the middle lies half a voxel behind the first.
    assert [it["coordinateTransformations"] for it in levels] == [
        [
            {"type": "scale", "scale": [1, 40, 8, size]},
            {"type": "translation", "translation": [0, 0, -8, place]},
        ]
        for size, place in ((4, 12), (8, 14))
    ]
    assert group["1"].shape == (2, 5, 6, 4)
    pairs = DATA[..., :6].reshape(2, 5, 6, 3, 2).mean(axis=-1)
    np.testing.assert_allclose(group["1"][..., :3], pairs, rtol=1e-6)
    np.testing.assert_array_equal(group["1"][..., 3], DATA[..., 6])
