"""What a prediction's values depend on, in words that a journal keeps and people can compare."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from znnpy.data.values.normalise import Normalisation
from znnpy.data.volume import Triple, Volume
from znnpy.network.digest import network_digest
from znnpy.network.types import Network
from znnpy.plan import Plan

SAMPLES = 3  # cubes along each axis that a fingerprint looks at
CUBE = 16  # voxels


def weights_digest(network: Network, parameters: Mapping[str, Any]) -> str:
    """Names a network with its filters and biases."""
    digest = hashlib.sha256(network_digest(network).encode())
    for name, array in sorted(parameters.items()):
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def fingerprint(volume: Volume, path: Path | None) -> str:
    """Names a volume's content without reading it whole: sizes, time of change, and samples."""
    words = [f"{volume.shape} {volume.dtype}"]
    if path is not None and path.is_file():
        stat = path.stat()
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(stat.st_mtime))
        words.append(f"{stat.st_size} bytes changed {when}.{stat.st_mtime_ns % 10**9:09d}")
    return ", ".join([*words, f"samples {_samples(volume):08x}"])


def plan_record(plan: Plan) -> dict[str, Any]:
    """A plan's forward pass without the reasons, which say how long something took."""
    record = plan.to_record()
    return {
        name: {k: v for k, v in layer.items() if k != "reason"} for name, layer in record.items()
    }


def norms_record(norms: Mapping[str, Normalisation]) -> dict[str, Any]:
    """Shift and scale of each channel by input node."""
    return {
        name: {"shift": norm.shift.tolist(), "scale": norm.scale.tolist()}
        | ({"not finite": "0"} if norm.replace else {})
        for name, norm in norms.items()
    }


def _samples(volume: Volume) -> int:
    found = 0
    sizes = [min(CUBE, n) for n in volume.extent]
    axes = [
        np.unique(np.linspace(0, n - size, SAMPLES).round().astype(int))
        for n, size in zip(volume.extent, sizes, strict=True)
    ]
    for z, y, x in itertools.product(*axes):
        lower: Triple = (int(z), int(y), int(x))
        upper = (lower[0] + sizes[0], lower[1] + sizes[1], lower[2] + sizes[2])
        found = crc32(np.ascontiguousarray(volume.read(lower, upper, finite=False)).data, found)
    return found
