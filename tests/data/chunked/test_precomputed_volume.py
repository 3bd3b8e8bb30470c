"""Neuroglancer's precomputed volumes: what tensorstore writes is read voxel for voxel; what is not read is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chunked_files import write_precomputed
from numpy.typing import NDArray

from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError

Array = NDArray[Any]
STACK = np.random.default_rng(0).integers(0, 200, (5, 17, 19)).astype(np.uint8)


SHARDED = {
    "@type": "neuroglancer_uint64_sharded_v1",
    "preshift_bits": 1,
    "minishard_bits": 2,
    "shard_bits": 1,
    "hash": "identity",
}


def stored(path: Path, array: Array, encoding: str, **more: Any) -> None:
    """(c, z, y, x), by tensorstore, whose axes are x, y, z, c."""
    tensorstore = pytest.importorskip("tensorstore")
    c, z, y, x = array.shape
    store = tensorstore.open(
        {
            "driver": "neuroglancer_precomputed",
            "kvstore": {"driver": "file", "path": str(path)},
            "multiscale_metadata": {
                "type": "segmentation" if "seg" in encoding else "image",
                "data_type": array.dtype.name,
                "num_channels": c,
            },
            "scale_metadata": {
                "size": [x, y, z],
                "encoding": encoding,
                "chunk_size": [8, 7, 3],
                "resolution": [4, 5, 40],
                "voxel_offset": [10, -4, 3],
                **more,
            },
            "create": True,
        }
    ).result()
    store[...] = array.T


def read(path: Path, wanted: Array) -> None:
    with open_volume(path) as volume:
        assert volume.shape == wanted.shape
        assert volume.dtype == wanted.dtype
        assert volume.resolution == (40, 5, 4)
        assert volume.placed == (120, -20, 40)
        assert np.array_equal(volume.read_all(), wanted)
        assert np.array_equal(volume.read((1, 2, 3), (4, 16, 17)), wanted[:, 1:4, 2:16, 3:17])
        volume.verify()


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "float32"]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_raw(tmp_path: Path, dtype: str, channels: int) -> None:
    array = np.stack([STACK + np.uint8(c) for c in range(channels)]).astype(dtype)
    stored(tmp_path / "v", array, "raw")
    read(tmp_path / "v", array)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_png(tmp_path: Path, dtype: str) -> None:
    array = STACK[None].astype(dtype) * np.array(200 if dtype == "uint16" else 1, dtype)
    stored(tmp_path / "v", array, "png")
    read(tmp_path / "v", array)


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_is_what_tensorstore_reads(tmp_path: Path, channels: int) -> None:
    smooth = np.broadcast_to(np.arange(19) * 10, (channels, 5, 17, 19)).astype(np.uint8)
    stored(tmp_path / "v", smooth, "jpeg")
    import tensorstore

    spec = {
        "driver": "neuroglancer_precomputed",
        "kvstore": {"driver": "file", "path": str(tmp_path / "v")},
    }
    wanted = tensorstore.open(spec).result().read().result().T
    with open_volume(tmp_path / "v") as volume:
        assert np.abs(volume.read_all().astype(int) - wanted.astype(int)).max() <= 1


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
@pytest.mark.parametrize("labels", [1, 2, 5, 200, 5000])
@pytest.mark.parametrize("block", [[8, 8, 8], [4, 3, 2]])
def test_compressed_segmentation(tmp_path: Path, dtype: str, labels: int, block: list[int]) -> None:
    random = np.random.default_rng(labels)
    numbers = random.integers(0, np.iinfo(dtype).max, labels, dtype)
    array = numbers[random.integers(0, labels, (1, *STACK.shape))]
    more = {"compressed_segmentation_block_size": block}
    stored(tmp_path / "v", array, "compressed_segmentation", **more)
    read(tmp_path / "v", array)


@pytest.mark.parametrize("hashed", ["identity", "murmurhash3_x86_128"])
@pytest.mark.parametrize("packed", ["raw", "gzip"])
def test_shards(tmp_path: Path, hashed: str, packed: str) -> None:
    more = {"hash": hashed, "data_encoding": packed, "minishard_index_encoding": packed}
    array = np.stack([STACK, STACK + np.uint8(1)]).astype(np.uint16)
    for number, bits in enumerate(((0, 0, 0), (1, 2, 1), (9, 0, 0), (0, 3, 5))):
        names = ("preshift_bits", "minishard_bits", "shard_bits")
        sharding = SHARDED | more | dict(zip(names, bits, strict=True))
        stored(tmp_path / f"{number}", array, "raw", sharding=sharding)
        read(tmp_path / f"{number}", array)


def test_shards_that_hold_less(tmp_path: Path) -> None:
    """Chunks that nobody wrote are 0; what is cut or points elsewhere is refused."""
    array = STACK[None].copy()
    array[:, :3, :7, :8] = 0  # which tensorstore does not store
    stored(tmp_path / "v", array, "raw", sharding=SHARDED)
    read(tmp_path / "v", array)
    shards = sorted((tmp_path / "v").rglob("*.shard"))
    assert [it.name for it in shards] == ["0.shard", "1.shard"]
    whole = shards[0].read_bytes()
    for damaged in (whole[:10], whole[:-1], whole[:64] + b"\xff" * (len(whole) - 64)):
        shards[0].write_bytes(damaged)
        with (
            pytest.raises(VolumeError, match=r"0\.shard"),
            open_volume(tmp_path / "v") as volume,
        ):
            volume.read_all()
    shards[0].unlink()
    with open_volume(tmp_path / "v") as volume:
        assert 0 < np.count_nonzero(volume.read_all()) < np.count_nonzero(array)


@pytest.mark.parametrize("packed", ["data_encoding", "minishard_index_encoding", ""])
def test_gzip_that_is_damaged(tmp_path: Path, packed: str) -> None:
    """zlib has an error of its own, which names no file."""
    more = {"sharding": SHARDED | {packed: "gzip"}} if packed else {}
    stored(tmp_path / "v", STACK[None], "raw", **more)
    (file, *_) = sorted(
        it for it in (tmp_path / "v").rglob("*") if it.is_file() and it.name != "info"
    )
    data = file.read_bytes() if packed else gzip.compress(file.read_bytes())
    at = data.index(b"\x1f\x8b") + 10
    broken = file if packed else file.rename(file.with_name(f"{file.name}.gz"))
    broken.write_bytes(data[:at] + b"\xff" * 6 + data[at + 6 :])
    with (
        pytest.raises(VolumeError, match=rf"{broken.name} is damaged"),
        open_volume(tmp_path / "v") as volume,
    ):
        volume.read_all()


def test_png_that_would_lose_bits(tmp_path: Path) -> None:
    stored(tmp_path / "v", np.stack([STACK, STACK]).astype(np.uint16), "png")
    with pytest.raises(VolumeError, match="16 bits in each of several channels"):
        open_volume(tmp_path / "v")


def test_chunks_named_by_their_compression(tmp_path: Path) -> None:
    """As CloudVolume leaves them in folders, where no server says how they are compressed."""
    stored(tmp_path / "v", STACK[None], "raw")
    chunks = [it for it in (tmp_path / "v").rglob("*_*") if it.is_file()]
    assert len(chunks) == 18
    for chunk in chunks:
        chunk.with_name(f"{chunk.name}.gz").write_bytes(gzip.compress(chunk.read_bytes()))
        chunk.unlink()
    read(tmp_path / "v", STACK[None])
    last = chunks[-1].with_name(f"{chunks[-1].name}.gz")
    last.rename(last.with_suffix(".br"))
    with (
        pytest.raises(VolumeError, match=r"\.br is compressed in a way that is not read"),
        open_volume(tmp_path / "v") as volume,
    ):
        volume.read_all()


def test_scales(tmp_path: Path) -> None:
    write_precomputed(tmp_path / "v", STACK)
    path = tmp_path / "v" / "info"
    info = json.loads(path.read_text())
    coarse = STACK[::2, ::2, ::2]
    z, y, x = coarse.shape
    scale = {
        **info["scales"][0],
        "key": "8_8_80",
        "size": [x, y, z],
        "resolution": [8, 8, 80],
        "chunk_sizes": [[x, y, z]],
    }
    path.write_text(json.dumps({**info, "scales": [scale, *info["scales"]]}))
    (tmp_path / "v" / "8_8_80").mkdir()
    content = gzip.compress(np.ascontiguousarray(coarse).tobytes())
    (tmp_path / "v" / "8_8_80" / f"0-{x}_0-{y}_0-{z}").write_bytes(content)
    with open_volume(tmp_path / "v") as volume:
        assert volume.resolution == (40, 4, 4)
        assert np.array_equal(volume.read_all()[0], STACK)
    with open_volume(f"{tmp_path}/v:8_8_80") as volume:
        assert np.array_equal(volume.read_all()[0], coarse)
    with pytest.raises(VolumeError, match="has no scale 9; it has: 8_8_80, 4_4_40"):
        open_volume(f"{tmp_path}/v:9")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"encoding": "fpzip"}, "has encoding fpzip; raw, jpeg"),
        ({"sharding": {"@type": "other"}}, "sharding is other; neuroglancer_uint64_sharded_v1 is"),
        ({"sharding": SHARDED | {"shard_bits": 65}}, "sharding.shard_bits must be 0 to 64"),
        ({"sharding": SHARDED | {"minishard_bits": 64}}, "more parts than are read"),
        ({"size": [2**40] * 3, "sharding": SHARDED}, "do not tell"),
        ({"sharding": SHARDED | {"hash": "md5"}}, "sharding.hash is md5; identity, murmur"),
        ({"size": [1, 2]}, "size must be 3 whole numbers"),
        ({"chunk_sizes": []}, "chunk_sizes must be 3"),
        ({"chunk_sizes": [[2**20, 2**20, 2**20]]}, "a chunk are accepted"),
        ({"size": [2**30, 2**30, 2**30]}, "are accepted for what its files hold"),
        ({"resolution": [0, 1, 1]}, "resolution must be three positive numbers"),
        ({"voxel_offset": [0.5, 0, 0]}, "voxel_offset must be 3"),
        ({"encoding": "compressed_segmentation"}, "is of uint32 or uint64, not of uint8"),
    ],
)
def test_metadata_that_are_wrong(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    write_precomputed(tmp_path / "v", STACK, **change)
    with pytest.raises(VolumeError, match=words):
        open_volume(tmp_path / "v").close()


DAMAGED = {
    "empty": b"",
    "word": b"\1\0\0\0",
    "jpeg": b"\xff\xd8\xff",
    "png": b"\x89PNG\r\n\x1a\n",
    "ones": b"\xff" * 64,
    "bomb": gzip.compress(bytes(1 << 24)),
}


@pytest.mark.parametrize("encoding", ["raw", "jpeg", "png", "compressed_segmentation"])
@pytest.mark.parametrize("kind", DAMAGED)
def test_chunks_that_are_damaged(tmp_path: Path, encoding: str, kind: str) -> None:
    array = STACK.astype(np.uint32 if "seg" in encoding else np.uint8)
    more = {"compressed_segmentation_block_size": [8, 8, 8]}
    write_precomputed(tmp_path / "v", array, encoding=encoding, **more)
    (tmp_path / "v" / "4_4_40" / "0-19_0-17_0-5").write_bytes(DAMAGED[kind])
    words = r"4_4_40/0-19_0-17_0-5 is damaged|no data was ever written|where at most"
    with pytest.raises(VolumeError, match=words):
        open_volume(tmp_path / "v").read_all()


def test_keys_do_not_lead_out(tmp_path: Path) -> None:
    write_precomputed(tmp_path / "secret", STACK)
    write_precomputed(tmp_path / "v", STACK)
    info = (tmp_path / "v" / "info").read_text()
    (tmp_path / "v" / "info").write_text(info.replace("4_4_40", "../secret/4_4_40"))
    with pytest.raises(VolumeError, match="is no path inside the precomputed folder"):
        open_volume(tmp_path / "v").read_all()
