"""A volume of Neuroglancer's precomputed format, read by region: chunks raw, JPEG, PNG or compressed segmentation."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.data.chunk_folder import METADATA_LIMIT, ChunkFolder
from znnpy.data.chunked.segmentation import decoded_labels
from znnpy.data.chunked.sharding import Shards, unpacked
from znnpy.data.chunked.volume import ChunkedVolume, voxel_sizes, whole_numbers
from znnpy.data.decoded_size import inflated
from znnpy.data.safety_limits import CHUNK_LIMIT, Trust
from znnpy.data.volume import Array, Shape4
from znnpy.dataset_path import joined
from znnpy.errors import VolumeError

INFO = "info"
TYPES = ("int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64", "float32")
ENCODINGS = ("raw", "jpeg", "png", "compressed_segmentation")
GZIP = b"\x1f\x8b"
PACKED = (".br", ".zst", ".zstd")
"""Behind the names of chunks that CloudVolume compresses in folders; .gz alone is read."""


def is_precomputed(path: Path) -> bool:
    """Return whether a folder has the metadata of a precomputed volume."""
    try:
        with (path / INFO).open("rb") as file:
            return b'"scales"' in file.read(METADATA_LIMIT)
    except OSError:
        return False


class PrecomputedVolume(ChunkedVolume):
    """One scale of a volume, by its key; without one that of the smallest voxels; chunks in files or in shards.

    Chunks begin at the scale's `voxel_offset`, which times the voxel size is the volume's place.
    """

    def __init__(self, path: Path, dataset: str | None, trust: Trust) -> None:
        folder = ChunkFolder(path, "precomputed", (INFO,), trust.external)
        info = folder.json(INFO)
        if info is None:
            raise VolumeError(f"{path} holds no {INFO}")
        scale = _scale(info, dataset, str(path))
        self._at = str(scale.get("key"))
        name = joined(path, self._at)
        size = whole_numbers(scale.get("size"), name, "size", 3)
        chunks = scale.get("chunk_sizes")
        first = chunks[0] if isinstance(chunks, list) and chunks else None
        chunk = whole_numbers(first, name, "chunk_sizes", 3)
        (channels,) = whole_numbers([info.get("num_channels")], name, "num_channels")
        self._first = _corner(scale, name)
        self._kind = _encoding(info, scale, name)
        if self._kind == "png" and channels > 1 and info.get("data_type") == "uint16":
            raise VolumeError(
                f"{name} has PNG chunks of 16 bits in each of several channels, of which 8 would be lost: copy it with "
                "encoding raw"
            )
        self._block = (
            whole_numbers(
                scale.get("compressed_segmentation_block_size"),
                name,
                "compressed_segmentation_block_size",
                3,
            )
            if self._kind == "compressed_segmentation"
            else []
        )
        if prod(self._block) * 8 > CHUNK_LIMIT:
            raise VolumeError(f"{name}: blocks of {self._block} voxels (x, y, z) are not read")
        x, y, z = voxel_sizes(scale.get("resolution"), name, "resolution")
        place = tuple(a * b for a, b in zip(self._first[::-1], (z, y, x), strict=True))
        super().__init__(
            folder,
            name,
            (channels, size[2], size[1], size[0]),
            (channels, chunk[2], chunk[1], chunk[0]),
            np.dtype(str(info["data_type"]).lower()),
            (z, y, x),
            place,  # type: ignore[arg-type]
        )
        self._shards = _shards(folder, scale, (size, chunk), name)
        self._bounded(self._at, trust)
        folder.see_chunks(self._at, 0)

    def _key(self, index: Shape4) -> str:
        ranges = []
        for axis in (3, 2, 1):
            first, step, most = self._first[3 - axis], self._grid[axis], self.shape[axis]
            low = index[axis] * step
            ranges.append(f"{first + low}-{first + min(low + step, most)}")
        return f"{self._at}/{'_'.join(ranges)}"

    def _stored(self, index: Shape4, limit: int) -> bytes | None:
        if self._shards is not None:
            return self._shards.read(index[:0:-1], limit)
        found, key = super()._stored(index, limit), self._key(index)
        if found is None and (packed := self._folder.read(f"{key}.gz", limit)) is not None:
            return unpacked(packed, limit, f"{self.name}: the chunk {key}.gz")
        if found is None:
            self._refuse_packed(key)
        return found

    def _refuse_packed(self, key: str) -> None:
        """Raise VolumeError where a chunk that seems to be absent is there by another name."""
        for end in PACKED:
            if self._folder.read(f"{key}{end}", 1, 0, 1) is not None:
                raise VolumeError(
                    f"{self.name}: the chunk {key}{end} is compressed in a way that is not read: copy the volume with "
                    "gzip, or without compression"
                )

    def _decoded(self, data: bytes, shape: Shape4) -> Array:
        size = prod(shape) * self.dtype.itemsize
        if self._kind in ("jpeg", "png"):
            return _picture(self._kind, data, shape, self.dtype)
        if data.startswith(GZIP) and len(data) != size:  # as programs leave them that fill buckets
            data = inflated("gzip", data, 2 * size + (1 << 16))
        if self._kind == "raw":
            if len(data) != size:
                raise VolumeError(f"it has {len(data)} bytes instead of {size}")
            return np.frombuffer(data, self.dtype.newbyteorder("<")).reshape(shape)
        x, y, z = self._block
        return decoded_labels(data, shape, self.dtype, (z, y, x))

    def verify(self) -> None:
        """Raise ChangedError unless the metadata are those that were opened; chunks are checked as they are read."""
        self._folder.verify([INFO])


def _scale(info: dict[str, Any], dataset: str | None, path: str) -> dict[str, Any]:
    """Return the scale of some key, or the one of the smallest voxels."""
    given = info.get("scales")
    scales = [it for it in given if isinstance(it, dict)] if isinstance(given, list) else []
    if dataset is None and scales:
        sizes = [prod(voxel_sizes(it.get("resolution"), path, "resolution")) for it in scales]
        return scales[sizes.index(min(sizes))]
    for scale in scales:
        if dataset is not None and scale.get("key") == dataset.strip("/"):
            return scale
    keys = ", ".join(str(it.get("key"))[:40] for it in scales[:20]) or "none"
    raise VolumeError(f"{path} has no scale {dataset}; it has: {keys}")


def _corner(scale: dict[str, Any], name: str) -> list[int]:
    """Return the first voxel x, y, z."""
    found = scale.get("voxel_offset", [0, 0, 0])
    return whole_numbers(found, name, "voxel_offset", 3, least=-(2**62))


def _shards(
    folder: ChunkFolder, scale: dict[str, Any], shape: tuple[list[int], list[int]], name: str
) -> Shards | None:
    """Return the shards of a scale of so many voxels, and so many a chunk, x, y, z; None where it has none."""
    if (found := scale.get("sharding")) is None:
        return None
    grid = [-(-n // step) for n, step in zip(*shape, strict=True)]
    return Shards(folder, str(scale.get("key")), found, grid, name)


def _encoding(info: dict[str, Any], scale: dict[str, Any], name: str) -> str:
    kind, dtype = scale.get("encoding"), str(info.get("data_type")).lower()
    if kind not in ENCODINGS:
        raise VolumeError(f"{name} has encoding {str(kind)[:40]}; {', '.join(ENCODINGS)} are read")
    if dtype not in TYPES:
        raise VolumeError(f"{name} holds {dtype[:40]}; {', '.join(TYPES)} are read")
    takes = {
        "jpeg": ("uint8",),
        "png": ("uint8", "uint16"),
        "compressed_segmentation": ("uint32", "uint64"),
    }
    if dtype not in takes.get(kind, TYPES):
        raise VolumeError(
            f"{name}: encoding {kind} is of {' or '.join(takes[kind])}, not of {dtype}"
        )
    return str(kind)


def _picture(kind: str, data: bytes, shape: Shape4, dtype: np.dtype[Any]) -> Array:
    """Return the values of a picture of as many pixels as a chunk has voxels, and as many bands as channels."""
    from io import BytesIO

    from PIL import Image

    with Image.open(BytesIO(data), formats=[kind.upper()]) as image:
        channels, pixels = shape[0], prod(shape[1:])
        if image.width * image.height != pixels or len(image.getbands()) != channels:
            raise VolumeError(
                f"it is a picture of {image.width} x {image.height} pixels, {image.mode}, for {shape} voxels"
            )
        values = np.asarray(image).reshape(*shape[1:], channels)
    if values.dtype.kind not in "ui" or values.dtype.itemsize > 2 * dtype.itemsize:
        raise VolumeError(f"it is a picture of {values.dtype}")
    return np.moveaxis(values, -1, 0)
