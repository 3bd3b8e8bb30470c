"""Kernels of a family: each of its own code, compiled once and kept, wherever the family is declared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import family_kernels
import numpy as np
import pytest
from family_kernels import AT, FAMILY, moved, plus, result, times
from znnpy_kernels import compile
from znnpy_kernels.compile import compile_all
from znnpy_kernels.layers.activation_functions import ACTIVATIONS
from znnpy_kernels.machine import cache, declarations
from znnpy_kernels.machine.abi import Kernel, kernel
from znnpy_kernels.machine.memory import floats

ALL = """
import sys
from family_kernels import FAMILY, result

for made in FAMILY.values():
    print(result(made), made.compile().cache_hits)
print("numba.np.arraymath" in sys.modules)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of this test's own; other processes find this module."""
    paths = [str(Path(family_kernels.__file__).parent), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("ZNNPY_CACHE", str(tmp_path / "cache"))
    for known in (cache.root, cache.directory):
        known.cache_clear()
    yield tmp_path / "cache"
    for known in (cache.root, cache.directory):
        known.cache_clear()


def printed() -> list[str]:
    command = [sys.executable, "-c", ALL]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")


def test_a_second_process_compiles_nothing(folder: Path) -> None:
    assert printed()[:3] == ["4.0 0", "5.0 0", "15.0 0"]
    assert printed()[:4] == ["4.0 1", "5.0 1", "15.0 1", "False"]


def test_processes_compile_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile, "RUNTIME", ())
    anew = [Kernel(made.function, made.words) for made in FAMILY.values()]
    assert compile_all(anew, 2) == 3
    assert [result(made) for made in anew] == [4, 5, 15]
    assert [made.compile().cache_hits for made in anew] == [1, 1, 1]


def test_entries_that_differ_in_a_number_or_a_helper_share_no_code() -> None:
    again = [
        moved("again", plus, 1),
        *(
            # as they would be in other versions of the file
            Kernel(made.function, made.words)
            for made in FAMILY.values()
        ),
    ]
    assert len({cache.label(made.function) for made in again}) == 4
    first, number = FAMILY["plus_1"].function, FAMILY["plus_2"].function
    number.__qualname__ = first.__qualname__
    try:
        ends = {cache.label(function).rpartition("-")[2] for function in (first, number)}
    finally:
        number.__qualname__ = number.__name__
    assert len(ends) == 2


def test_each_has_a_name_of_its_own() -> None:
    for name, made in FAMILY.items():
        assert made.name == made.function.__qualname__ == f"moved_{name}"
        assert declarations.named(f"{family_kernels.__name__}:moved_{name}") is made
    with pytest.raises(ValueError, match="moved_plus_1 is declared twice"):
        moved("plus_1", times, 1)
    assert declarations.named(f"{family_kernels.__name__}:moved_plus_1") is FAMILY["plus_1"]


def test_one_without_a_name_is_refused() -> None:
    number = 3

    def unnamed(args: Any, worker: int) -> None:
        floats(args[AT.target])[0] = number

    with pytest.raises(ValueError, match=r"unnamed is one of a family: it needs a name"):
        kernel(AT)(unnamed)


def test_what_has_no_hash_is_refused() -> None:
    made = moved("array", plus, np.zeros(2))
    with pytest.raises(
        TypeError, match=re.escape("kernel moved_array closes over array([0., 0.])")
    ):
        cache.label(made.function)


def test_processes_import_what_declares_an_entry() -> None:
    made = ACTIVATIONS["relu"].forward
    assert made.__module__ == "znnpy_kernels.layers.activation_kernels"
    assert declarations.others(made) == ["znnpy_kernels.layers.activation_functions"]


def test_what_a_process_does_not_find_is_left_to_who_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compile.signal, "signal", lambda *given: None)
    compile.main(["znnpy_kernels.layers.reduction:none_such"])
    assert capsys.readouterr().out == "znnpy_kernels.layers.reduction:none_such\n"
