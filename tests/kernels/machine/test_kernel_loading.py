"""What is loaded from disk works without numba's compiler, which still works afterwards."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding as llvm
from znnpy_kernels.layers.reduction import sum_vectors
from znnpy_kernels.machine.abi import SIGNATURE
from znnpy_kernels.machine.cache import directory
from znnpy_kernels.machine.loading import callback

COMPILER = "numba.np.arraymath"  # imported before anything is compiled

CALLED = "kernel", "dispatched"
SCRIPT = """
import numpy as np
from pathlib import Path
from numba import types
from znnpy_kernels.machine import loading

def kernel(words, worker):
    words[0] = words[1] + worker

def dispatched(a, b):
    return 2 * a + b

words, number = types.CPointer(types.int64), types.int64
compiled = loading.callback(kernel, types.void(words, number), Path("kernel"))
values = np.array([0, 40])
compiled.ctypes(values.ctypes.data_as(compiled.ctypes.argtypes[0]), 2)
native = loading.dispatcher(dispatched, number(number, number), Path("dispatched"))
print(compiled.cache_hits, values[0], native(20, 2))
"""
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
    assert printed(LOAD + THEN_COMPILE, tmp_path) == "False\n"


def test_what_is_kept_has_machine_code_and_names_alone(tmp_path: Path) -> None:
    def run() -> str:
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout

    assert run() == "0 42 42\n"
    for name in CALLED:
        (file,) = (tmp_path / name).glob("*.nbc")
        _, kept = pickle.loads(file.read_bytes())
        (_, kind, (_, names)), *_ = pickle.loads(kept)
        assert kind == "object"
        module = llvm.parse_bitcode(names)
        assert not list(module.functions)
        assert not any(it.is_declaration for it in module.global_variables)
        assert any(name in it.name for it in module.global_variables)
    assert run() == "1 42 42\n"


def test_loaded_kernels_keep_no_code_to_link() -> None:
    folder = directory(sum_vectors.function)
    sum_vectors.compile()  # which leaves it in the folder
    again = callback(sum_vectors.function, SIGNATURE, folder)
    # numba keeps of each what callers need that it compiles: kernels have none.
    assert again.cache_hits == 1
    assert again._library._shared_module is None
    assert again.address
