"""Products of feature maps, voxel by voxel.

Words as in `simd.rows`; `length` counts floats of a row, whole vectors.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.simd.vectors import load, store

MULTIPLY = words(
    "first first_z first_y second second_z second_y target target_z target_y planes rows length"
)


@kernel(MULTIPLY)
def multiply_rows(args: Any, worker: int) -> None:
    """Write first times second to the target, which may be one of them."""
    at = MULTIPLY
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            first = args[at.first] + 4 * (z * args[at.first_z] + y * args[at.first_y])
            second = args[at.second] + 4 * (z * args[at.second_z] + y * args[at.second_y])
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            for i in range(0, 4 * args[at.length], VECTOR_BYTES):
                store(target + i, load(first + i) * load(second + i))
