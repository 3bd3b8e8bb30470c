"""A function is compiled again where what it is made of changed, and nowhere else."""

from __future__ import annotations

import dis
import functools
import inspect
from types import CodeType, FunctionType
from typing import Any

import pytest
from znnpy_kernels import compile
from znnpy_kernels.machine import cache, declarations, source_hash
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.machine.native import Native
from znnpy_kernels.machine.shared_functions import Shared

TEXTS = source_hash.texts()
HOST = {
    "compile",
    "machine.cache",
    "machine.cache_eviction",
    "machine.declarations",
    "machine.private_files",
    "machine.source_hash",
}
"""Modules that no compiled function comes from."""


@functools.cache
def before() -> dict[str, str]:
    """Of the package as it is; that takes seconds."""
    return source_hash.hashes(TEXTS)


def changed(module: str, old: str, new: str) -> set[str]:
    """Functions that an edit compiles again."""
    assert TEXTS[module].count(old) == 1, old
    after = source_hash.hashes(TEXTS | {module: TEXTS[module].replace(old, new)})
    return {name for name in before() if after[name] != before()[name]}


def added(module: str, text: str) -> set[str]:
    after = source_hash.hashes(TEXTS | {module: TEXTS[module] + text})
    return {name for name in before() if after[name] != before()[name]}


@pytest.mark.quick(1)
@pytest.mark.parametrize("text", ["# a remark\n", "\n\ndef new(x):\n    return load(x)\n"])
def test_what_nothing_uses_compiles_nothing(text: str) -> None:
    assert added("simd.vectors", text) == set()


@pytest.mark.slow
def test_docstrings_and_the_making_of_kernels_compile_nothing() -> None:
    assert changed("machine.abi", "Run once on the calling thread, for tests", "Run now") == set()
    assert changed("machine.abi", "block = (ctypes.c_int64", "other = (ctypes.c_int64") == set()
    for module in HOST:
        assert added(module, "\n\nNEW = 1\n") == set()


def test_a_helper_compiles_what_reaches_it() -> None:
    found = changed("simd.vectors", "b.fptrunc(scalar, element)", "b.fptrunc(scalar,  element, 0)")
    assert {"simd.rows:zero_flat", "winograd.forward:_winograd"} <= found
    assert "layers.reduction:sum_vectors" not in found
    assert len(found) < len(before())


def test_a_constant_that_a_helper_of_a_helper_uses_counts() -> None:
    found = changed("fft.codelet_networks", "TINY = 1e-9", "TINY = 1e-8")
    assert "fft.codelets:forward" in found
    assert not {name for name in found if name.startswith(("winograd", "direct", "layers"))}


def test_the_order_of_words_counts() -> None:
    assert changed("simd.rows", 'ZERO_FLAT = words("', 'ZERO_FLAT = words("more ') == {
        "simd.rows:zero_flat"
    }


@pytest.mark.slow
def test_what_is_done_on_import_counts_for_all_that_import_it() -> None:
    """Operators of vectors are registered, and no kernel has a name for them."""
    found = added("simd.vectors", "\n\n_operator(operator.mod, None, _both('frem'))\n")
    assert {"simd.rows:zero_flat", "winograd.forward:_winograd"} <= found
    registered = "\n\n@lower_builtin(operator.mod)\ndef remainder(x):\n    pass\n"
    assert added("simd.vectors", registered) == found


@pytest.mark.slow
def test_how_functions_are_compiled_counts_for_all() -> None:
    assert added("machine.loading", "\n\nNEW = 1\n") == set(before())
    assert added("machine.linking", "\n\nNEW = 1\n") == set(before())


def test_one_more_of_a_family_compiles_no_other() -> None:
    text = "\n\n@inlined\ndef one_more(x):\n    pass\n\n\nMORE = activation('one_more', one_more)\n"
    assert added("layers.activation_functions", text) == set()


def test_a_function_that_one_of_a_family_is_given_compiles_no_other() -> None:
    found = changed("layers.activation_functions", "share, _ = normal(x)", "share, _ = normal(-x)")
    assert found == {"layers.activation_functions:gelu"}


def test_all_that_can_be_compiled_is_known() -> None:
    """And found again by its name; of a family, by its factory and by all that this is given."""
    made = declarations.every()
    assert all(isinstance(it, Kernel | Native | Shared) for it in made)
    assert {place for it in made for place in places(it)} <= {
        tuple(name.split(":")) for name in before()
    }
    assert set(compile.RUNTIME) <= set(made)
    assert all(declarations.named(declarations.full_name(it)) is it for it in made)
    assert len({cache.label(it.function) for it in made}) == len(made)


def places(made: Kernel | Native | Shared) -> list[source_hash.Place]:
    """Definitions whose hashes are that of what is compiled by itself."""
    cells = [cell.cell_contents for cell in made.function.__closure__ or ()]
    functions = [made.function, *(cell.py_func for cell in cells if hasattr(cell, "py_func"))]
    return [(_module(it), it.__code__.co_qualname.partition(".")[0]) for it in functions]


@pytest.mark.slow
def test_functions_reach_by_name_what_they_reach_in_python() -> None:
    """All functions and classes of the package that compiled Python code can come upon."""
    modules = {name: source_hash.parsed(text) for name, text in TEXTS.items()}
    for made in declarations.every():
        known = set[source_hash.Place]().union(
            *(source_hash.reached(modules, place) for place in places(made))
        )
        for place in walked(made.function):
            assert place in known, (made.name, place)


def walked(start: Any) -> set[source_hash.Place]:
    found: set[source_hash.Place] = set()
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        this = waiting.pop()
        this = getattr(this, "py_func", None) or getattr(this, "_defn", None) or this
        if id(this) in seen or isinstance(this, Kernel | Native | Shared):
            continue  # what is compiled by itself is called by its address or its name
        seen.add(id(this))
        if inspect.isclass(this) and _here(this):
            found.add((_module(this), this.__qualname__.partition(".")[0]))
            waiting += [it for it in vars(this).values() if isinstance(it, FunctionType)]
        elif isinstance(this, FunctionType) and _here(this):
            # Kernels of a family have names that their factory gives them.
            name = this.__code__.co_qualname
            if "<locals>" not in name and "<lambda>" not in name:
                found.add((_module(this), name.partition(".")[0]))
            waiting += _used(this)
        elif isinstance(this, dict | list | tuple):
            waiting += this.values() if isinstance(this, dict) else this
    return {place for place in found if hasattr(_imported(place[0]), place[1])}


def _here(value: Any) -> bool:
    return str(value.__module__).startswith(f"{source_hash.PACKAGE}.")


def _module(value: Any) -> str:
    return str(value.__module__).removeprefix(f"{source_hash.PACKAGE}.")


def _imported(module: str) -> Any:
    return __import__(f"{source_hash.PACKAGE}.{module}", fromlist=["any"])


def _used(function: FunctionType) -> list[Any]:
    """Values of the global names in a function, and what it closes over."""
    names: set[str] = set()
    codes: list[Any] = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(it.argval for it in dis.get_instructions(code) if it.opname == "LOAD_GLOBAL")
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [function.__globals__[name] for name in names if name in function.__globals__] + cells
