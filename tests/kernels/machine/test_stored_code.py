"""Machine code that was taken from the cache runs without what declares it, in this process and in others."""

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from znnpy_kernels.machine import stored_code
from znnpy_kernels.machine.declarations import full_name
from znnpy_kernels.machine.stored_code import Code, code_of, linked
from znnpy_kernels.simd.rows import add_flat
from znnpy_kernels.spectral.packed_tiles import packed_spectra

NAME = full_name(add_flat)
CALL = """
import ctypes, sys
from pathlib import Path
import numpy as np
from znnpy_kernels.machine.stored_code import Code, linked

values = np.arange(9, dtype=np.float32)
at, length = values.ctypes.data, len(values)
symbol, path, *fields = sys.argv[1:]
kernel = linked({"any:name": Code(symbol, Path(path).read_bytes())})["any:name"]
words = (ctypes.c_int64 * len(fields))(*(length if it == "length" else at for it in fields))
ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(kernel.address)(words, 0)
print(values.tolist() == [2 * it for it in range(9)], "znnpy_kernels.simd.rows" in sys.modules)
"""


def given() -> Code:
    code = code_of(add_flat)
    assert code is not None
    return code


def test_it_is_called_by_its_address() -> None:
    found = linked({NAME: given()})[NAME]
    assert found.loaded
    assert full_name(found) == NAME
    assert found.address not in (0, add_flat.address)
    first, second, target = (np.full(9, it, np.float32) for it in (1, 2, 7))
    places = {"first": first, "second": second, "target": target}
    words = add_flat.arguments(
        length=8, **{name: array.ctypes.data for name, array in places.items()}
    )
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(found.address)
    call((ctypes.c_int64 * len(words))(*words), 0)
    assert target.tolist() == [3] * 8 + [7]


def test_other_processes_need_no_module_that_declares_it(tmp_path: Path) -> None:
    symbol, content = given()
    (tmp_path / "code").write_bytes(content)
    command = [sys.executable, "-c", CALL, symbol, str(tmp_path / "code"), *add_flat.fields]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_what_needs_more_than_its_code_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_of(packed_spectra) is None  # which calls functions that are loaded by themselves
    monkeypatch.setattr(stored_code, "known", lambda: False)  # another version of numba
    assert code_of(add_flat) is None


def test_nor_has_what_the_cache_has_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert add_flat.compile()
    monkeypatch.setattr(stored_code.cache, "directory", lambda _: tmp_path)
    assert code_of(add_flat) is None


def test_none_at_all_are_linked_without_an_engine() -> None:
    before = len(stored_code._engines)
    assert linked({}) == {}
    assert len(stored_code._engines) == before
