"""Class numbers of predictions, written block by block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pytest
import zarr
from called import status_of

from znnpy.data.class_labels import Numbering, class_numbers, region_labels
from znnpy.data.opening import open_volume
from znnpy.data.volume import ArrayVolume
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.hdf5_output import Hdf5Output
from znnpy.errors import VolumeError
from znnpy.segment.by_blocks import block_of, write_by_blocks
from znnpy.segment.job import Request, segment
from znnpy.segment.tile_work import Settings

RNG = np.random.default_rng(0)
CLASSES = Request("classes")
SMALL = Settings(memory=8 * 1080)


def prediction(path: Path, array: Any, **attributes: Any) -> Path:
    with h5py.File(path, "w") as file:
        file["prediction"] = array
        file["prediction"].attrs.update(attributes)
    return path


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "u2"])
@pytest.mark.parametrize("channels", [2, 3, 300])
def test_the_largest_channel_the_first_of_equal_ones(dtype: str, channels: int) -> None:
    values = RNG.integers(0, 5, (channels, 4, 5, 6)).astype(dtype)
    found = class_numbers(values)
    assert np.array_equal(found, values.argmax(axis=0))
    assert found.dtype == (np.uint8 if channels < 257 else np.uint16)
    assert np.array_equal(class_numbers(values, 3), values.argmax(axis=0) + 3)
    assert class_numbers(values[:2], 254).dtype == np.uint8
    assert class_numbers(values[:2], 255).dtype == np.uint16


def test_one_channel() -> None:
    values = np.array([0, 0.5, 0.51, 1], np.float32).reshape(1, 1, 1, 4)
    assert class_numbers(values).ravel().tolist() == [0, 0, 1, 1]
    whole = np.array([0, 127, 128, 255], np.uint8).reshape(1, 1, 1, 4)
    assert class_numbers(whole, 1).ravel().tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("suffix", ["h5", "zarr", "nii.gz", "nrrd"])
@pytest.mark.parametrize("memory", [None, 8 * 1000])
def test_written_by_blocks(tmp_path: Path, suffix: str, memory: int | None) -> None:
    values = RNG.random((4, 9, 12, 11)).astype(np.float32)
    path = prediction(tmp_path / "p.h5", values, resolution=[40, 4, 5], offset=[80, 8, 0])
    out = Destination.named(str(tmp_path / f"l.{suffix}"), "labels")
    with open_volume(path, "prediction") as volume:
        spec = write_by_blocks(out, volume, CLASSES, Settings(memory=memory))
        assert (len(spec.blocks()) > 20) == (memory is not None)
    with open_volume(out.name, role="labels") as found:
        assert found.dtype == np.uint8
        assert np.array_equal(found.read_all()[0], values.argmax(axis=0))
        assert found.resolution == pytest.approx((40, 4, 5))
        assert found.offset == pytest.approx((80, 8, 0))
    shape = {
        "h5": lambda: h5py.File(out.path)["labels"].shape,
        "zarr": lambda: zarr.open_array(out.path, path="0", mode="r").shape,
        "nii.gz": lambda: nibabel.load(out.path).shape[::-1],
        "nrrd": lambda: (9, 12, 11),
    }[suffix]()
    assert shape == (9, 12, 11)


@pytest.mark.parametrize("dtype", ["f4", "u1"])
def test_regions_paint_one_over_the_other(tmp_path: Path, dtype: str) -> None:
    values = RNG.random((3, 9, 12, 11))
    values = values.astype(dtype) if dtype == "f4" else np.rint(255 * values).astype(dtype)
    wanted, half = np.zeros(values.shape[1:], int), 0.5 if dtype == "f4" else 127.5
    for channel, label in zip(values, (7, 300, 2), strict=True):
        wanted = np.where(channel > half, label, wanted)
    assert set(np.unique(wanted)) == {0, 2, 7, 300}
    path = prediction(tmp_path / "p.h5", values)
    request = Request("classes", numbering=Numbering(regions=(7, 300, 2)))
    with open_volume(path) as volume:
        spec = write_by_blocks(Destination(tmp_path / "l.h5", "l"), volume, request, SMALL)
    assert len(spec.blocks()) > 4
    with h5py.File(tmp_path / "l.h5") as file:
        assert file["l"].dtype == np.uint16
        assert np.array_equal(file["l"], wanted)
    assert np.array_equal(region_labels(values - half, (7, 300, 2), 0.0), wanted)


def test_regions_that_were_begun_are_no_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = RNG.random((3, 9, 12, 11)).astype(np.float32)
    path, there = prediction(tmp_path / "p.h5", values), Destination(tmp_path / "l.h5", "l")
    put, written = Hdf5Output.put, list[Any]()

    def stopped(self: Hdf5Output, *block: Any) -> int:
        written.append(block)
        if len(written) > 2:
            raise KeyboardInterrupt
        return put(self, *block)

    painted = Request("classes", numbering=Numbering(regions=(3, 2, 1)))
    with open_volume(path) as volume:
        monkeypatch.setattr(Hdf5Output, "put", stopped)
        with pytest.raises(KeyboardInterrupt):
            write_by_blocks(there, volume, painted, SMALL)
        monkeypatch.setattr(Hdf5Output, "put", put)
        for other in (CLASSES, Request("classes", numbering=Numbering(regions=(3, 2, 2)))):
            with pytest.raises(VolumeError, match=r"regions was \[3, 2, 1\]"):
                write_by_blocks(there, volume, other, SMALL)
        write_by_blocks(there, volume, painted, SMALL)
    with h5py.File(there.path) as file:
        assert np.array_equal(file["l"], region_labels(values, (3, 2, 1)))


def test_what_a_mask_left_out_is_no_class(tmp_path: Path) -> None:
    values = RNG.random((3, 4, 5, 6)).astype(np.float32)
    values[:, 1:3] = 0
    path = prediction(tmp_path / "p.h5", values)
    for first in (0, 1):
        request = Request("classes", numbering=Numbering(first))
        with open_volume(path) as volume:
            write_by_blocks(Destination(tmp_path / f"{first}.h5", "l"), volume, request)
        with h5py.File(tmp_path / f"{first}.h5") as file:
            assert np.array_equal(
                file["l"], np.where(values.any(axis=0), values.argmax(axis=0) + first, 0)
            )


def test_classes_that_are_0_are_not_left_out(tmp_path: Path) -> None:
    """Of some channels: bytes of others say that there was a prediction."""
    values = np.zeros((3, 2, 3, 4), np.uint8)
    values[:, 0] = np.array([255, 0, 0], np.uint8)[:, None, None]
    request = Request("classes", channels=(1, 2), numbering=Numbering(1))
    with open_volume(prediction(tmp_path / "p.h5", values)) as volume:
        write_by_blocks(Destination(tmp_path / "l.h5", "l"), volume, request)
    with h5py.File(tmp_path / "l.h5") as file:
        assert (file["l"][0] == 1).all()
        assert (file["l"][1] == 0).all()


def test_some_channels(tmp_path: Path) -> None:
    values = RNG.random((4, 3, 5, 6)).astype(np.float32)
    path = prediction(tmp_path / "p.h5", values)
    with open_volume(path, "prediction") as volume:
        write_by_blocks(
            Destination(tmp_path / "l.h5", "l"), volume, Request("classes", channels=(1, 3))
        )
    with h5py.File(tmp_path / "l.h5") as file:
        assert np.array_equal(file["l"], values[[1, 3]].argmax(axis=0))


def test_a_stopped_process_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = RNG.random((3, 8, 9, 10)).astype(np.float32)
    path, there = prediction(tmp_path / "p.h5", values), Destination(tmp_path / "l.h5", "l")
    real, written = Hdf5Output.put, list[Any]()

    def put(self: Hdf5Output, lower: Any, block: Any) -> int:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(lower)
        return real(self, lower, block)

    def noted(self: Hdf5Output, lower: Any, block: Any) -> int:
        written.append(lower)
        return real(self, lower, block)

    with open_volume(path, "prediction") as volume:
        with monkeypatch.context() as patched:
            patched.setattr(Hdf5Output, "put", put)
            with pytest.raises(KeyboardInterrupt):
                write_by_blocks(there, volume, CLASSES, SMALL)
        assert not there.path.exists()
        for other in (
            Request("classes", numbering=Numbering(1)),
            Request("classes", channels=(0, 1)),
            Request("classes", numbering=Numbering(regions=(1, 2, 3))),
        ):
            with pytest.raises(VolumeError, match="begun by another job"):
                write_by_blocks(there, volume, other, SMALL)
        monkeypatch.setattr(Hdf5Output, "put", noted)
        spec = write_by_blocks(there, volume, CLASSES, SMALL)
    assert len(written) == len(set(written)) == len(spec.blocks())
    with h5py.File(there.path) as file:
        assert np.array_equal(file["l"], values.argmax(axis=0))


@pytest.mark.parametrize("suffix", ["h5", "zarr", "nii.gz", "nrrd", "tif"])
def test_two_processes(tmp_path: Path, two_processes: Any, suffix: str) -> None:
    values = RNG.random((4, 9, 12, 11)).astype(np.float32)
    path = prediction(tmp_path / "p.h5", values)
    out = Destination.named(str(tmp_path / f"l.{suffix}"), "labels")
    settings = Settings(memory=8 * 1000, client=two_processes)
    with open_volume(path, "prediction") as volume:
        spec = write_by_blocks(out, volume, Request("classes", channels=(3, 0, 2)), settings)
    assert len(spec.blocks()) > 20
    with open_volume(out.name, role="labels") as found:
        assert np.array_equal(found.read_all()[0], values[[3, 0, 2]].argmax(axis=0))


def test_threads_share_the_memory(tmp_path: Path) -> None:
    path = prediction(tmp_path / "p.h5", np.zeros((1, 8, 1024, 1024), np.float32))
    sizes = []
    for number, threads in enumerate((1, 4, 10**9)):
        out = Destination.named(str(tmp_path / f"{number}.h5"), "l")
        with open_volume(path, "prediction") as volume:
            spec = write_by_blocks(out, volume, CLASSES, Settings(memory=1 << 27, threads=threads))
        sizes.append(4 * int(np.prod(spec.block)))
    assert sizes == [1 << 24, 1 << 22, 1 << 20]


@pytest.mark.parametrize("size", [1, 100, 5_000, 100_000, 1 << 26])
@pytest.mark.parametrize("extent", [(5, 6, 7), (1, 300, 400), (300, 1, 1), (1, 1, 900)])
def test_blocks_are_no_larger_than_asked_for(extent: tuple[int, int, int], size: int) -> None:
    volume = ArrayVolume(np.zeros((3, *extent), np.float32))
    block = block_of(volume, size)
    assert all(1 <= n <= whole for n, whole in zip(block, extent, strict=True))
    assert np.prod(block) * 12 <= max(size, 12)
    assert np.prod(block) * 12 * 8 >= min(size, volume.nbytes)


def test_what_is_refused(tmp_path: Path) -> None:
    there = Destination(tmp_path / "l.h5", "l")
    volume = ArrayVolume(np.zeros((2, 3, 4, 5), np.float32), "p.h5:p")
    for request, words in (
        (Request("classes", threshold=0.3), "takes no --threshold"),
        (Request("classes", kind="foreground", min_size=3), "takes no --min-size or --kind"),
        (Request("classes", channels=(2,)), "has channels 0 to 1, but channel 2"),
        (Request("classes", numbering=Numbering(65_535)), "do not fit into uint16"),
        (Request("classes", numbering=Numbering(regions=(1, 65_536))), "do not fit into uint16"),
        (
            Request("classes", numbering=Numbering(regions=(1, 2, 3))),
            "names 3 labels, for 2 channel",
        ),
    ):
        with pytest.raises(VolumeError, match=words):
            write_by_blocks(there, volume, request)
    with pytest.raises(VolumeError, match="holds uint64; expected probabilities"):
        write_by_blocks(there, ArrayVolume(np.zeros((3, 4, 5), np.uint64), "p.h5:p"), CLASSES)
    nan = ArrayVolume(np.full((2, 3, 4, 5), np.nan, np.float32), "p.h5:p")
    with pytest.raises(VolumeError, match="must be finite"):
        write_by_blocks(there, nan, CLASSES)
    with pytest.raises(VolumeError, match="is written block by block"):
        segment(volume, CLASSES)
    assert not there.path.exists()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = (RNG.random((3, 4, 5, 6)) * 255).astype(np.uint8)
    path = prediction(tmp_path / "p.h5", values)
    line = ("segment", path, "--method", "classes", "--output", tmp_path / "l.nii.gz", "--first", 1)
    assert status_of(*line) == 0
    assert "l.nii.gz  (4, 5, 6) (z, y, x): class numbers, uint8" in capsys.readouterr().out
    found = np.asarray(nibabel.load(tmp_path / "l.nii.gz").dataobj).T
    assert np.array_equal(found, values.argmax(axis=0) + 1)
    assert status_of(*line) == 1
    assert "exists already" in capsys.readouterr().err
    assert status_of(*line[:-2], "--regions", "3,1,2", "--overwrite") == 0
    painted = np.asarray(nibabel.load(tmp_path / "l.nii.gz").dataobj).T
    assert np.array_equal(painted, region_labels(values, (3, 1, 2)))
    assert status_of(*line, "--regions", "3,1,2", "--overwrite") == 2
    assert "without --first" in capsys.readouterr().err
    assert status_of(*line[:-2], "--regions", "3,x", "--overwrite") == 2
    assert "--regions must be numbers" in capsys.readouterr().err
    assert status_of(*line, "--overwrite") == 0
    assert status_of(*line, "--min-size", 3, "--overwrite") == 1
    assert "--method classes takes no --min-size" in capsys.readouterr().err
    assert status_of(*line, "--block", 3, "--overwrite") == 2
    assert "--method classes takes no --block" in capsys.readouterr().err
    assert status_of(*line, "--dask", "local:1", "--overwrite") == 0
    again = np.asarray(nibabel.load(tmp_path / "l.nii.gz").dataobj).T
    assert np.array_equal(again, found)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = prediction(tmp_path / "p.h5", RNG.random((2, 3, 4, 5)).astype(np.float32))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Hdf5Output, "_put", full)
    with (
        open_volume(path) as volume,
        pytest.raises(VolumeError, match="cannot be written: No space"),
    ):
        write_by_blocks(Destination(tmp_path / "l.h5", "l"), volume, CLASSES)
