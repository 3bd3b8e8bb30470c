"""Small N5 and precomputed folders, written by their descriptions alone."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


def write_n5(path: Path, array: Array, **more: Any) -> None:
    """An array (z, y, x) as one raw block."""
    path.mkdir(parents=True)
    sizes = array.shape[::-1]
    attributes = {
        "dimensions": sizes,
        "blockSize": sizes,
        "dataType": array.dtype.name,
        "compression": {"type": "raw"},
        **more,
    }
    (path / "attributes.json").write_text(json.dumps(attributes))
    place = path / "0" / "0"
    place.mkdir(parents=True)
    header = struct.pack(">HH3I", 0, 3, *sizes)
    (place / "0").write_bytes(header + array.astype(array.dtype.newbyteorder(">")).tobytes())


def write_precomputed(path: Path, array: Array, **more: Any) -> None:
    """An array (z, y, x) as one raw chunk of voxels of 4 x 4 x 40 nm."""
    z, y, x = array.shape
    scale = {
        "key": "4_4_40",
        "size": [x, y, z],
        "resolution": [4, 4, 40],
        "voxel_offset": [0, 0, 0],
        "chunk_sizes": [[x, y, z]],
        "encoding": "raw",
        **more,
    }
    info = {
        "@type": "neuroglancer_multiscale_volume",
        "type": "image",
        "data_type": array.dtype.name,
        "num_channels": 1,
        "scales": [scale],
    }
    (path / scale["key"]).mkdir(parents=True)
    (path / "info").write_text(json.dumps(info))
    (path / scale["key"] / f"0-{x}_0-{y}_0-{z}").write_bytes(array.tobytes())
