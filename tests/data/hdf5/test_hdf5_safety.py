"""Files of unknown origin: each is refused with one error that names file and dataset."""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
from pathlib import Path
from typing import get_args

import h5py
import numpy as np
import pytest
from znnpy_kernels.machine.cache import CacheError

from znnpy.config.data_section import DataSection
from znnpy.data.hdf5 import safety as hdf5_safety
from znnpy.data.hdf5 import volume as hdf5_volume
from znnpy.data.hdf5.safety import FILTERS, MORE_FILTERS
from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError

FILTER_NAMES = get_args(get_args(DataSection.model_fields["allow_filters"].annotation)[0])
CUBE = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.h5"
    with h5py.File(path, "w") as file:
        file["raw"] = CUBE
    return path


def refused(source: object, *words: str, **options: object) -> str:
    with pytest.raises(VolumeError) as caught:
        open_volume(str(source), **options).close()  # type: ignore[arg-type]
    text = str(caught.value)
    for word in words:
        assert word in text
    return text


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_file_that_this_process_has_open(secret: Path, mode: str) -> None:
    """As notebooks do; it stays open there."""
    with h5py.File(secret, mode) as mine:
        with open_volume(f"{secret}:raw") as volume:
            assert volume.extent == CUBE.shape
        np.testing.assert_array_equal(mine["raw"][...], CUBE)


def test_external_link(tmp_path: Path, secret: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["raw"] = h5py.ExternalLink(secret.name, "/raw")
    refused(path, "a.h5", "raw", "external link")
    refused(f"{path}:raw", "external link")
    with open_volume(path, allow_external=True) as volume:
        assert np.array_equal(volume.read_all()[0], CUBE)


def test_group_behind_an_external_link(tmp_path: Path, secret: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["volumes"] = h5py.ExternalLink(secret.name, "/")
    refused(path, "volumes", "external link")
    refused(f"{path}:volumes/raw", "external link")


def test_soft_link_to_an_external_link(tmp_path: Path, secret: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["hidden"] = h5py.ExternalLink(secret.name, "/raw")
        file["raw"] = h5py.SoftLink("/hidden")
    refused(path, "soft link")


def test_dangling_link_when_links_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["raw"] = h5py.ExternalLink("nowhere.h5", "/raw")
    refused(path, "a.h5", "cannot be opened", allow_external=True)


def test_link_to_itself_when_links_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["main"] = h5py.SoftLink("/main")  # h5py raises RuntimeError, not KeyError
    refused(f"{path}:main", "a.h5", "cannot be opened", "too many links", allow_external=True)


def test_links_are_not_searched(tmp_path: Path, secret: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["elsewhere"] = h5py.ExternalLink(secret.name, "/raw")
        file["group/own"] = CUBE
        file["group/again"] = file["group"]
    with open_volume(path) as volume:
        assert volume.name.endswith(":group/own")


def test_virtual_dataset(tmp_path: Path, secret: Path) -> None:
    path = tmp_path / "a.h5"
    layout = h5py.VirtualLayout(CUBE.shape, CUBE.dtype)
    layout[:] = h5py.VirtualSource(secret, "raw", CUBE.shape)
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("raw", layout)
    refused(path, "a.h5:raw is a virtual dataset")
    with open_volume(path, allow_external=True) as volume:
        assert np.array_equal(volume.read_all()[0], CUBE)


def test_external_storage(tmp_path: Path) -> None:
    path, outside = tmp_path / "a.h5", tmp_path / "passwords"
    outside.write_bytes(b"x" * 1000)
    with h5py.File(path, "w") as file:
        file.create_dataset("raw", (2, 3, 4), "u1", external=[(str(outside), 0, 24)])
    refused(path, "a.h5:raw", "passwords")


def test_unknown_filter(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((2, 3, 4))
        properties.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (1,))
        space = h5py.h5s.create_simple((2, 3, 4))
        data = h5py.h5d.create(file.id, b"raw", h5py.h5t.NATIVE_UINT8, space, properties)
        data.write_direct_chunk((0, 0, 0), CUBE.tobytes())
    refused(path, "a.h5:raw", "32015", "zstd")
    refused(path, "a.h5:raw", "32015", allow_filters=("lz4",))
    refused(path, "data.allow_filters: [zstd]")
    refused(path, 'not installed: pip install "znnpy[hdf5]"', allow_filters=("zstd",))


def of_filter(path: Path, code: int) -> None:
    """A dataset that says it is stored with a filter, and a chunk of it."""
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(CUBE.shape)
        properties.set_filter(code, h5py.h5z.FLAG_OPTIONAL, (1,))
        space = h5py.h5s.create_simple(CUBE.shape)
        data = h5py.h5d.create(file.id, b"raw", h5py.h5t.NATIVE_UINT8, space, properties)
        data.write_direct_chunk((0, 0, 0), CUBE.tobytes(), 1)


@pytest.mark.parametrize("name", FILTER_NAMES)
def test_every_filter_that_a_config_can_allow(tmp_path: Path, name: str) -> None:
    """The chunk is stored as it is, so that whatever filter is there has nothing to do."""
    codes = MORE_FILTERS | {label: code for code, label in FILTERS.items()}
    if h5py.h5z.filter_avail(codes[name]):
        options: dict[str, object] = {"compression": name} if name in ("lzf", "szip") else {}
        options |= {"scaleoffset": 0} if name == "scaleoffset" else {}
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("raw", data=CUBE, chunks=CUBE.shape, **options)
        with open_volume(tmp_path / "a.h5", allow_filters=(name,)) as volume:
            assert np.array_equal(volume.read_all()[0], CUBE)
        return
    of_filter(tmp_path / "a.h5", codes[name])
    refused(tmp_path / "a.h5", name, "not installed", "hdf5plugin", allow_filters=(name,))


def test_plugins_are_loaded_where_they_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(h5py.h5z, "filter_avail", lambda code: code == 32015 and bool(loaded))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "hdf5plugin")
    monkeypatch.setattr(importlib, "import_module", loaded.append)
    of_filter(tmp_path / "a.h5", 32015)
    with open_volume(tmp_path / "a.h5", allow_filters=("zstd",)) as volume:
        assert np.array_equal(volume.read_all()[0], CUBE)
    assert loaded == ["hdf5plugin"]


def test_filters_of_hdf5_itself_are_told_by_name(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("raw", data=CUBE, chunks=CUBE.shape, scaleoffset=0)
    words = ("filter 6 (scaleoffset); only", "data.allow_filters: [scaleoffset]", "h5repack")
    refused(tmp_path / "a.h5", *words)
    of_filter(tmp_path / "b.h5", 5)
    refused(tmp_path / "b.h5", "filter 5 (nbit); only", "data.allow_filters: [nbit]")
    of_filter(tmp_path / "c.h5", 32001)
    refused(tmp_path / "c.h5", "filter 32001 (blosc), which may load a plug-in")
    of_filter(tmp_path / "d.h5", 65000)
    refused(tmp_path / "d.h5", "filter 65000 (unknown)", "h5repack -f GZIP=4 writes a file without")


def test_a_cache_that_cannot_be_used_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lengths of lzf data are counted by a kernel."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        flat = np.zeros((4, 8, 8), np.uint8)
        file.create_dataset("raw", data=flat, chunks=flat.shape, compression="lzf")

    def unusable(data: bytes) -> int:
        raise CacheError("kernel cache x cannot be used")

    monkeypatch.setattr(hdf5_volume, "lzf_length", unusable)
    with (
        open_volume(tmp_path / "a.h5") as volume,
        pytest.raises(CacheError, match="kernel cache x"),
    ):
        volume.read_all()


def test_a_mistake_here_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_filter(tmp_path / "a.h5", 32015)
    monkeypatch.setattr(hdf5_safety, "MORE_FILTERS", {"zstd": 32015})
    with pytest.raises(KeyError, match="szip"):
        open_volume(tmp_path / "a.h5", allow_filters=("zstd",))


@pytest.mark.parametrize("options", [{"chunks": (64, 64, 64), "compression": "gzip"}, {}])
def test_four_tebibytes_that_were_never_written(tmp_path: Path, options: dict[str, object]) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("raw", (16384, 16384, 16384), "u1", **options)
    refused(path, "a.h5:raw", "4.0 TiB")


def test_four_tebibytes_with_one_chunk_written(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        shape = (16384, 16384, 16384)
        data = file.create_dataset("raw", shape, "u1", chunks=(64, 64, 64), compression="gzip")
        data[:64, :64, :64] = 1
    refused(path, "a.h5:raw", "4.0 TiB", "at most")


def test_limit_of_the_caller(tmp_path: Path, secret: Path) -> None:
    refused(secret, "at most 23 B", max_bytes=23)
    open_volume(secret, max_bytes=24).close()


def test_huge_chunk(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        shape = (1100, 1024, 1024)
        file.create_dataset("raw", shape, "u1", chunks=shape, compression="gzip")
        data = file["raw"].id
        data.write_direct_chunk((0, 0, 0), b"x" * 2_000_000)
    refused(path, "chunk")


@pytest.mark.parametrize("share", [0.0, 0.005, 0.3, 0.9, 0.999])
def test_truncated_file(tmp_path: Path, share: float) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("raw", data=np.random.default_rng(0).bytes(1), dtype="S1")
        file.create_dataset("main", data=np.zeros((10, 20, 30)), chunks=(5, 5, 5))
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    refused(f"{path}:main", "a.h5")


def test_damaged_chunk_is_named_when_read(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("raw", CUBE.shape, "u1", chunks=CUBE.shape, compression="gzip")
        data.id.write_direct_chunk((0, 0, 0), b"no deflate stream")
    with open_volume(path) as volume, pytest.raises(VolumeError, match=r"a\.h5:raw: the region"):
        volume.read_all()


def test_missing_dataset_names_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["volumes/raw"] = CUBE
    refused(f"{path}:volumes/rav", "did you mean volumes/raw?")
    refused(f"{path}:volumes/raw/deep", "volumes/raw is not a group")
    refused(f"{path}:volumes", "not a dataset")


def test_several_candidates_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["one"], file["two"], file["flat"] = CUBE, CUBE, CUBE[0]
    text = refused(path, "one", "two")
    assert "flat" not in text


def test_no_dataset(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    h5py.File(path, "w").close()
    refused(path, "holds no dataset")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (CUBE[None, None], ("a.h5:raw", "5 axes")),
        (np.zeros((2, 3, 4), [("a", "i4"), ("b", "f4")]), ("a.h5:raw", "compound")),
        (np.full((2, 3, 4), b"text"), ("a.h5:raw", "plain numbers")),
        (np.zeros((2, 3, 4), np.complex64), ("a.h5:raw",)),
        (np.zeros((2, 0, 4), np.uint8), ("a.h5:raw", "empty")),
        (h5py.Empty("f4"), ("a.h5:raw",)),
        (7, ("a.h5:raw", "0 axes")),
    ],
)
def test_wrong_kind_of_data(tmp_path: Path, value: object, words: tuple[str, ...]) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["raw"] = value
    refused(f"{path}:raw", *words)


@pytest.mark.parametrize("size", [3, 5])
def test_integers_of_odd_sizes_are_a_type_not_damage(tmp_path: Path, size: int) -> None:
    path, odd = tmp_path / "a.h5", h5py.h5t.STD_I64LE.copy()
    odd.set_precision(8 * size)
    odd.set_size(size)
    with h5py.File(path, "w") as file:
        made = h5py.h5d.create(file.id, b"raw", odd, h5py.h5s.create_simple(CUBE.shape))
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, CUBE.astype(np.int64))
    assert "damaged" not in refused(path, "a.h5:raw", f"a type of {size} bytes")


@pytest.mark.parametrize("value", [[4, 4], [4, 0, 4], [4, np.nan, 4], "4 4 4", np.zeros((1000, 3))])
def test_wrong_resolution(tmp_path: Path, value: object) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["raw"] = CUBE
        file["raw"].attrs["resolution"] = value
    refused(path, "a.h5:raw")


def test_other_file_types(tmp_path: Path) -> None:
    text, empty = tmp_path / "a.h5", tmp_path / "b.h5"
    text.write_text("not a volume")
    empty.write_bytes(b"")
    refused(text, "is no HDF5", "not a vo")
    refused(empty, "is empty")
    refused(tmp_path, "is not a file")
    os.mkfifo(tmp_path / "pipe.h5")
    refused(tmp_path / "pipe.h5", "is not a file")
    refused(tmp_path / "a.h4", "does not exist", "did you mean", "a.h5")
    refused(tmp_path / "folder" / "a.h5", "there is no folder")


def _hold_open(path: Path, opened: object, done: object) -> None:
    with h5py.File(path, "a"):
        opened.set()  # type: ignore[attr-defined]
        done.wait(300)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_file_that_another_process_holds_open(secret: Path) -> None:
    context = multiprocessing.get_context("spawn")
    opened, done = context.Event(), context.Event()
    other = context.Process(target=_hold_open, args=(secret, opened, done))
    other.start()
    try:
        assert opened.wait(300)
        with open_volume(secret) as one, open_volume(secret) as two:
            assert np.array_equal(one.read_all(), two.read_all())
    finally:
        done.set()
        other.join()
