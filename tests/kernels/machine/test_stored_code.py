"""Machine code that was taken from the cache runs without what declares it, in this process and in others."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from znnpy_kernels.machine import cache, stored_code
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


def test_its_symbol_is_that_of_the_code_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of two processes that compile it at once one has written the file of both, under a symbol of its own.
    assert add_flat.compile()
    monkeypatch.setattr(add_flat, "_compiled", SimpleNamespace(native_name="another", address=1))
    symbol, content = given()
    assert symbol != "another"
    assert symbol.encode() in content


def test_a_damaged_file_gives_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    symbol, content = given()
    shutil.copytree(cache.directory(add_flat.function), tmp_path / "copy")
    monkeypatch.setattr(stored_code.cache, "directory", lambda _: tmp_path / "copy")
    (kept,) = (tmp_path / "copy").glob("*.nbc")
    whole = kept.read_bytes()
    kept.write_bytes(whole)
    assert code_of(add_flat) == (symbol, content)
    middle = whole.index(content) + len(content) // 2
    flipped = bytes([whole[middle] ^ 1])
    for damaged in (whole[:middle], whole[:middle] + flipped + whole[middle + 1 :], b""):
        kept.write_bytes(damaged)
        assert code_of(add_flat) is None


def test_of_one_name_one_is_linked_and_what_lacks_its_symbol_is_not() -> None:
    first = linked({NAME: given()})
    before = len(stored_code._engines)
    assert linked({NAME: given()}) == first
    assert len(stored_code._engines) == before
    other = {"any:lost": Code("of_no_function", given().content)}
    assert linked({NAME: given(), **other}) == first


def test_none_at_all_are_linked_without_an_engine() -> None:
    before = len(stored_code._engines)
    assert linked({}) == {}
    assert len(stored_code._engines) == before
