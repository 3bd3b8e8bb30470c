"""What is loaded from disk works without numba's compiler, which still works afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from znnpy_kernels.layers.reduction import sum_vectors
from znnpy_kernels.machine.abi import SIGNATURE
from znnpy_kernels.machine.cache import directory
from znnpy_kernels.machine.loading import callback

COMPILER = "numba.np.arraymath"  # imported before anything is compiled

LOAD = f"""
import sys
import numpy as np
from znnpy_kernels.data.moments import byte_sums
from znnpy_kernels.scheduling.paths import topological_order
from znnpy_kernels.layers.reduction import sum_vectors

sum_vectors.compile(), topological_order.compile()
values, found = np.arange(100, dtype=np.uint8), np.zeros(2, np.int64)
byte_sums(values.ctypes.data, 100, found.ctypes.data)
assert found.tolist() == [4950, 328350]
kept = topological_order(np.zeros(1, np.int64), *np.zeros((3, 0), np.int64))
assert kept == 0
print({COMPILER!r} in sys.modules)
"""
THEN_COMPILE = """
import numba
assert numba.njit(lambda a: np.sqrt(a).sum())(np.ones(3)) == 3
"""


def printed(code: str, folder: Path) -> str:
    environment = os.environ | {"ZNNPY_CACHE": str(folder)}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


@pytest.mark.slow
def test_loading_leaves_the_compiler_alone(tmp_path: Path) -> None:
    assert printed(LOAD, tmp_path) == "True\n"
    assert printed(LOAD, tmp_path) == "False\n"
    assert printed(LOAD + THEN_COMPILE, tmp_path) == "False\n"


def test_loaded_kernels_keep_no_code_to_link() -> None:
    folder = directory(sum_vectors.function)
    sum_vectors.compile()  # which leaves it in the folder
    again = callback(sum_vectors.function, SIGNATURE, folder)
    # numba keeps half a megabyte of each for callers that it compiles: kernels have none.
    assert again.cache_hits == 1
    assert again._library._shared_module is None
    assert again.address
