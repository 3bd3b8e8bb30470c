"""HDF5 chunks with fewer bytes than they need: refused by name, never read as they are."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from znnpy.data.decoded_size import lzf_length
from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError

SHAPE, CHUNK = (4, 32, 32), (2, 32, 32)
ARRAY = np.random.default_rng(0).integers(0, 9, SHAPE).astype(np.uint8)
OPTIONS = {
    "plain": {},
    "gzip": {"compression": "gzip"},
    "shuffle": {"compression": "gzip", "shuffle": True},
    "lzf": {"compression": "lzf"},
    "lzf shuffle": {"compression": "lzf", "shuffle": True},
    "fletcher32": {"fletcher32": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
}


def write(path: Path, data: bytes | None = None, mask: int = 0, **options: object) -> None:
    """A dataset whose second chunk is written as it is given."""
    with h5py.File(path, "w") as file:
        made = file.create_dataset("raw", data=ARRAY, chunks=CHUNK, **options)
        if data is not None:
            made.id.write_direct_chunk((2, 0, 0), data, mask)


def with_stored_size(path: Path, size: int) -> None:
    """Change what the index of chunks says of the second one."""
    with h5py.File(path) as file:
        chunk = file["raw"].id.get_chunk_info_by_coord((2, 0, 0))
    data = path.read_bytes()
    key = struct.pack("<II4Q", chunk.size, chunk.filter_mask, 2, 0, 0, 0)
    assert data.count(key) == 1
    path.write_bytes(data.replace(key, struct.pack("<I", size) + key[4:]))


def read_twice(path: Path) -> None:
    """The first chunk, which is good, then all."""
    with open_volume(path) as volume:
        assert np.array_equal(volume.read((0, 0, 0), CHUNK)[0], ARRAY[:2])
        volume.read_all()


@pytest.mark.parametrize("name", OPTIONS)
def test_whole_chunks_are_read(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a.h5", **OPTIONS[name])
    with open_volume(tmp_path / "a.h5") as volume:
        assert np.array_equal(volume.read_all()[0], ARRAY)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_chunk_of_no_bytes_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a.h5", **OPTIONS[name])
    with_stored_size(tmp_path / "a.h5", 0)
    with pytest.raises(VolumeError, match=r"a\.h5:raw: the chunk at \(2, 0, 0\) has 0 bytes"):
        open_volume(tmp_path / "a.h5")


@pytest.mark.parametrize("name", ["plain", "fletcher32"])
def test_a_plain_chunk_that_is_too_small_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a.h5", **OPTIONS[name])
    with_stored_size(tmp_path / "a.h5", 2 * 32 * 32 - 1)
    with pytest.raises(VolumeError, match=r"\(2, 0, 0\) has 2047 bytes where 2048 are needed"):
        open_volume(tmp_path / "a.h5")


@pytest.mark.parametrize(
    ("name", "data", "mask", "words"),
    [
        ("gzip", zlib.compress(b"ab"), 0, r"decodes to 2 bytes where 2048 are needed"),
        ("gzip", b"ab", 1, r"has 2 bytes where 2048 are needed"),
        ("shuffle", zlib.compress(b"ab"), 0, r"decodes to 2 bytes"),
        ("gzip", zlib.compress(bytes(1 << 20)), 0, r"decodes to more than"),
        ("lzf", b"\x01ab", 0, r"decodes to 2 bytes"),
        ("lzf", b"\x05ab", 0, r"ends within its lzf data"),
    ],
)
def test_a_chunk_that_decodes_to_less_is_refused_when_read(
    tmp_path: Path, name: str, data: bytes, mask: int, words: str
) -> None:
    write(tmp_path / "a.h5", data, mask, **OPTIONS[name])
    with pytest.raises(VolumeError, match=rf"a\.h5:raw: the chunk at \(2, 0, 0\).*{words}"):
        read_twice(tmp_path / "a.h5")


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"fletcher32": True}])
def test_chunks_that_were_never_written_hold_the_fill_value(
    tmp_path: Path, options: dict[str, object]
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("raw", SHAPE, "u1", chunks=CHUNK, fillvalue=7, **options)
        made[:2] = ARRAY[:2]
    with open_volume(tmp_path / "a.h5") as volume:
        found = volume.read_all()[0]
    assert (found[2:] == 7).all()
    assert np.array_equal(found[:2], ARRAY[:2])


@pytest.mark.parametrize("library", ["earliest", "latest"])
@pytest.mark.parametrize("shape", [(5, 33, 31), (2, 5, 33, 31)])
def test_chunks_over_the_edge(tmp_path: Path, library: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 9, shape).astype(np.uint16)
    for name, options in OPTIONS.items():
        with h5py.File(tmp_path / "a.h5", "w", libver=library) as file:
            chunk = (*shape[:-3], 2, 8, 16)
            file.create_dataset("raw", data=array, chunks=chunk, **options)
        with open_volume(tmp_path / "a.h5") as volume:
            assert np.array_equal(volume.read_all(), array.reshape(-1, *shape[-3:])), name


@pytest.mark.parametrize("high", [1, 2, 255])
def test_length_of_lzf_data(tmp_path: Path, high: int) -> None:
    array = np.random.default_rng(0).integers(0, high, (1, 64, 1024)).astype(np.uint8)
    array[:, ::2] = 3
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("raw", data=array, chunks=array.shape, compression="lzf")
        mask, data = made.id.read_direct_chunk((0, 0, 0))
    assert mask == 0
    assert lzf_length(data) == array.size


READ = """
import sys
from znnpy.data.opening import open_volume
with open_volume(sys.argv[1]) as volume:
    volume.read_all()
print("numba" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all", "lzf"])
def test_only_lzf_waits_for_the_compiler(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a.h5", **OPTIONS[name])
    command = [sys.executable, "-c", READ, str(tmp_path / "a.h5")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str("lzf" in name)
