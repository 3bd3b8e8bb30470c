"""Words of direct correlations that say which taps a voxel meets: all of them, or those of its lattice."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

NO_LIMIT = 1 << 40  # voxels: no image is as long
Triple = tuple[int, int, int]

# Output voxel i reads source voxels i * stride + k * sparsity for all taps k, none of which lies outside.
VALID: dict[str, int] = {
    f"{name}_{axis}": value
    for name, value in (
        ("lattice", 1),
        ("skip", 1),
        ("origin", 0),
        ("apart", 0),
        ("limit", NO_LIMIT),
        ("shift", 0),
    )
    for axis in "zyx"
} | {"halo": 0}


def full_words(
    stride: Triple, sparsity: Triple, before: Triple, limit: Triple, *, halo: bool
) -> dict[str, int]:
    """Voxel i reads voxels (i + before - k * sparsity) / stride, where whole and in 0..limit.

    The data gradient of a convolution, `before` the voxels of padding before its source, `limit` the size
    of its output; or a transposed convolution. `halo`: zeros stand round the rows that are read.
    """
    words = {"halo": int(halo)}
    for axis, step, apart, first, size in zip("zyx", stride, sparsity, before, limit, strict=True):
        common = gcd(step, apart)
        words |= {
            f"lattice_{axis}": step,
            f"skip_{axis}": step // common,
            f"origin_{axis}": first,
            f"apart_{axis}": apart,
            f"limit_{axis}": size,
            f"shift_{axis}": -(apart // common),
        }
    return words


def tap_words(words: dict[str, int], strides: Sequence[int]) -> dict[str, int]:
    """`tap_z`, `tap_y`, `tap_x` of `full_words`, for a source with these strides in floats."""
    return {
        f"tap_{axis}": words[f"shift_{axis}"] * step
        for axis, step in zip("zyx", strides, strict=True)
    }
