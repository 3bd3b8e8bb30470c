"""Writes N5 arrays block by block: chunks of gzip, the same bytes whatever happened between."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from znnpy.data.chunked.n5 import MARK, TYPES, N5Volume
from znnpy.data.safety_limits import Trust
from znnpy.data.volume import Array
from znnpy.data.writing.chunk_folders import Levelled, chunk_size, plain
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.folder_output import FolderOutput, write_folder
from znnpy.data.writing.journal import Region

UNIT = "nm"
PLACE = ("resolution", "offset")  # which N5 says by keys of its own
QUICK = 1  # of gzip; more takes three times as long for a tenth of the bytes
_GZIP = 31  # zlib's number for gzip's frame, whose time is 0 here


class N5Output(FolderOutput):
    """A new N5 folder with arrays DATASET/s0, DATASET/s1 ... of the levels of an image; axes x, y, z, and channels.

    `resolution` becomes `pixelResolution`, and with `offset` the `transform` that COSEM's programs read.
    """

    KEEPS_MEANING = True
    DTYPES = TYPES

    def _array(self, level: int) -> str:
        return "/".join(part for part in (self._group, f"s{level}") if part)

    def _files(self, level: int, region: Region) -> Iterator[tuple[str, Region]]:
        more = ["0"] if self._channels else []
        for (z, y, x), held in self._chunks(level, region):
            yield "/".join([self._array(level), str(x), str(y), str(z), *more]), held

    def _encoded(self, level: int, region: Region, data: Array) -> bytes:
        stored = data if self._channels else data[0]
        sizes = stored.shape[::-1]
        packer = zlib.compressobj(QUICK, zlib.DEFLATED, _GZIP)
        values = np.ascontiguousarray(stored, stored.dtype.newbyteorder(">")).tobytes()
        header = struct.pack(f">HH{len(sizes)}I", 0, len(sizes), *sizes)
        return header + packer.compress(values) + packer.flush()

    def _stored(self, level: int) -> Any:
        return Levelled(N5Volume(self._partial, self._array(level), (), Trust(max_bytes=1 << 62)))

    def _documents(self) -> dict[str, bytes]:
        parts = self._group.split("/") if self._group else []
        made: dict[str, dict[str, Any]] = {
            "/".join(parts[:count]): {} for count in range(len(parts) + 1)
        }
        made[""]["n5"] = "2.5.0"
        levels = range(len(self._levels))
        made[self._group] |= {
            "multiScale": True,
            "scales": [list(self._levels[level].factors[::-1]) for level in levels],
        }
        for level in levels:
            made[self._array(level)] = self._attributes(level)
        return {f"{key}/{MARK}".lstrip("/"): _json(found) for key, found in made.items()}

    def _attributes(self, level: int) -> dict[str, Any]:
        spec, found = self.spec, self._levels[level]
        more = [spec.shape[0]] if self._channels else []
        names = ["x", "y", "z", *(["c"] if self._channels else [])]
        given = plain(spec.attributes) if level == 0 else {}
        size = [*found.resolution(self._resolution)[::-1], *([1.0] if self._channels else [])]
        return {
            **{key: value for key, value in given.items() if key not in PLACE},
            "dimensions": [*found.shape[:0:-1], *more],
            "blockSize": [*(chunk_size(n) for n in spec.block[::-1]), *more],
            "dataType": str(spec.dtype),
            "compression": {"type": "gzip", "level": QUICK, "useZlib": False},
            "axes": names,
            "resolution": size,
            "units": [UNIT if name in "xyz" else "" for name in names],
            "pixelResolution": {"unit": UNIT, "dimensions": list(self._resolution[::-1])},
            "downsamplingFactors": list(found.factors[::-1]),
            "transform": {
                "axes": ["z", "y", "x"],
                "scale": list(found.resolution(self._resolution)),
                "translate": list(self._first(level)),
                "units": [UNIT] * 3,
            },
        }


def _json(found: Mapping[str, Any]) -> bytes:
    return (json.dumps(found, indent=2) + "\n").encode()


def write_n5(
    destination: Destination, array: Array, attributes: Mapping[str, Any] | None = None
) -> None:
    """Write an array (Z, Y, X) or (C, Z, Y, X) that is in memory, atomically; WriteError when the disk fails."""
    write_folder(N5Output, destination, array, attributes)
