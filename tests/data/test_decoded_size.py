"""Compressed bytes that would fill the memory are known before they are decoded."""

from __future__ import annotations

import bz2
import gzip
import json
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numcodecs import LZ4, Blosc, Zstd

from znnpy.data.decoded_size import inflated, refuse_larger
from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError

CUBE = np.random.default_rng(0).integers(0, 9, (16, 16, 16)).astype(np.uint16)
LARGE = 64 << 20


def zstd_stream(blocks: int) -> bytes:
    """A frame that does not say how long it is: so many blocks of 128 KiB zeros."""
    made = [
        struct.pack("<I", (131072 << 3) | 2 | (n == blocks - 1))[:3] + b"\0" for n in range(blocks)
    ]
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(made)


ZEROS = bytes(LARGE)
BOMBS: dict[str, Callable[[], bytes]] = {
    "zstd": lambda: Zstd().encode(ZEROS),
    "zstd stream": lambda: zstd_stream(LARGE >> 17),
    "zstd frames": lambda: Zstd().encode(bytes(4096)) * 20_000,
    "blosc": lambda: Blosc("zstd").encode(ZEROS),
    "gzip": lambda: gzip.compress(ZEROS),
    "gzip members": lambda: gzip.compress(bytes(1 << 20)) * 64,
    "zlib": lambda: zlib.compress(ZEROS),
    "bz2": lambda: bz2.compress(ZEROS),
    "lz4": lambda: LZ4().encode(ZEROS),
}


@cache
def bomb(name: str) -> bytes:
    return BOMBS[name]()


def with_codec(path: Path, kind: str, form: int, shards: bool) -> Path:
    """An array of one chunk, or of shards, that is stored with a codec; its file with the chunk."""
    from zarr import codecs

    three = {"zstd": codecs.ZstdCodec, "blosc": codecs.BloscCodec, "gzip": codecs.GzipCodec}
    two: dict[str, Any] = {"zlib": {"id": "zlib", "level": 1}, "bz2": {"id": "bz2", "level": 1}}
    two |= {"lz4": {"id": "lz4", "acceleration": 1}, "blosc": Blosc("zstd").get_config()}
    two |= {"gzip": {"id": "gzip", "level": 1}, "zstd": {"id": "zstd", "level": 0}}
    more: dict[str, Any] = {"shards": CUBE.shape} if shards else {}
    chunks = (8, 8, 8) if shards else CUBE.shape
    if form == 2:
        from numcodecs import get_codec

        more["compressors"] = get_codec(two[kind])
    else:
        more["compressors"] = three[kind]()
    zarr.create_array(path, data=CUBE, chunks=chunks, zarr_format=form, **more)
    return path / ("0.0.0" if form == 2 else "c/0/0/0")


@pytest.mark.parametrize(
    ("kind", "form", "shards"),
    [(kind, 2, False) for kind in ("zstd", "blosc", "gzip", "zlib", "bz2", "lz4")]
    + [(kind, 3, shards) for kind in ("zstd", "blosc", "gzip") for shards in (False, True)],
)
def test_plain_chunks_are_read(tmp_path: Path, kind: str, form: int, shards: bool) -> None:
    with_codec(tmp_path / "a.zarr", kind, form, shards)
    with open_volume(tmp_path / "a.zarr") as volume:
        assert np.array_equal(volume.read_all()[0], CUBE)


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("form", [2, 3])
def test_chunks_that_grow_are_refused(tmp_path: Path, name: str, form: int) -> None:
    kind = name.split()[0]
    if form == 3 and kind in ("zlib", "bz2", "lz4"):
        pytest.skip("format 3 has no such codec")
    file = with_codec(tmp_path / "a.zarr", kind, form, False)
    # Small files only: larger ones are refused by their size.
    file.write_bytes(bomb(name)[:70_000] if name == "zstd frames" else bomb(name))
    tracemalloc.start()
    with open_volume(tmp_path / "a.zarr") as volume, pytest.raises(VolumeError, match=r"a\.zarr"):
        volume.read_all()
    assert tracemalloc.get_traced_memory()[1] < LARGE // 4
    tracemalloc.stop()


def test_shard_with_a_chunk_that_grows(tmp_path: Path) -> None:
    file = with_codec(tmp_path / "a.zarr", "zstd", 3, True)
    metadata = json.loads((tmp_path / "a.zarr/zarr.json").read_text())
    assert metadata["codecs"][0]["name"] == "sharding_indexed"
    data, bomb = bytearray(file.read_bytes()), zstd_stream(500)
    index = len(data) - 4 - 8 * 16
    made = bytearray(data[:index] + bomb + data[index:-4])
    struct.pack_into("<QQ", made, index + len(bomb), index, len(bomb))
    from numcodecs.checksum32 import CRC32C

    file.write_bytes(bytes(made) + CRC32C.checksum(bytes(made[-8 * 16 :])).to_bytes(4, "little"))
    with open_volume(tmp_path / "a.zarr") as volume, pytest.raises(VolumeError, match="decodes to"):
        volume.read_all()


@pytest.mark.parametrize("name", ["zstd", "zstd stream", "zstd frames", "blosc", "lz4"])
def test_what_is_declared(name: str) -> None:
    kind = name.split()[0]
    size = 4096 * 20_000 if name == "zstd frames" else LARGE
    refuse_larger(kind, bomb(name), size)
    with pytest.raises(VolumeError, match=r"at most 1\.0 MiB are expected"):
        refuse_larger(kind, bomb(name), 1 << 20)
    with pytest.raises(VolumeError):
        refuse_larger(kind, bomb(name), size - 1)


def test_small_frame_that_does_not_say_its_size(tmp_path: Path) -> None:
    file = with_codec(tmp_path / "a.zarr", "zstd", 3, False)
    data = file.read_bytes()
    assert data[4] == 0x60  # two bytes of size, no window
    file.write_bytes(data[:4] + b"\x00\x58" + data[7:])
    with open_volume(tmp_path / "a.zarr") as volume:
        assert np.array_equal(volume.read_all()[0], CUBE)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gzip", "zlib", "bz2"])
def test_streams(kind: str) -> None:
    assert inflated(kind, bomb(kind), LARGE) == ZEROS
    with pytest.raises(VolumeError, match="more than"):
        inflated(kind, bomb(kind), LARGE - 1)
    with pytest.raises(VolumeError, match="ends within"):
        inflated(kind, bomb(kind)[:-9], LARGE)
    assert inflated("gzip", bomb("gzip members"), LARGE) == ZEROS


@pytest.mark.parametrize("form", [2, 3])
@pytest.mark.parametrize("length", [0, 9, 16, 17, -1])
def test_blosc_that_is_cut_short(tmp_path: Path, form: int, length: int) -> None:
    """The decoder itself reads what lies behind it in memory."""
    file = with_codec(tmp_path / "a.zarr", "blosc", form, False)
    file.write_bytes(file.read_bytes()[:length])
    with (
        pytest.raises(VolumeError, match=r"a\.zarr"),
        open_volume(tmp_path / "a.zarr") as volume,
    ):
        volume.read_all()
