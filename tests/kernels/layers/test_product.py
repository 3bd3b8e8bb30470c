"""Products of rows against NumPy."""

from __future__ import annotations

import numpy as np
from blocked_images import normal, same_bits
from znnpy_kernels.layers.product import multiply_rows
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES


def test_rows_are_multiplied_in_place_and_elsewhere() -> None:
    shape = (2, 3, 5 * LANES)
    first, second, target = normal(1, *shape), normal(2, *shape), np.zeros(shape, np.float32)
    strides = {"_z": shape[1] * shape[2], "_y": shape[2]}
    counts = {"planes": shape[0], "rows": shape[1], "length": shape[2]}

    def words(**arrays: np.ndarray) -> dict[str, int]:
        found = {f"{name}{axis}": step for name in arrays for axis, step in strides.items()}
        return found | {name: address(array) for name, array in arrays.items()} | counts

    multiply_rows.run(**words(first=first, second=second, target=target))
    assert same_bits(target, first * second)
    multiply_rows.run(**words(first=target, second=second, target=target))
    assert same_bits(target, first * second * second)
