"""Functions that many kernels call: compiled once, cached by themselves, and linked by name.

All other helpers are compiled as part of each kernel. Long straight-line code (`fft/codelets.py`) would take most of
the compile time of every kernel that calls it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType
from typing import Any

from llvmlite import binding as llvm
from llvmlite import ir
from numba import types

from znnpy_kernels.machine.cache import cached
from znnpy_kernels.machine.cache_eviction import hold
from znnpy_kernels.machine.declarations import declare
from znnpy_kernels.machine.loading import callback

# Numbers, not Python objects: any kernel can call it, whatever types it has.
SIGNATURE = types.void(types.int64, types.CPointer(types.int64), types.float64)
# The same signature as LLVM has it, for calls that are emitted.
POINTER = ir.IntType(64).as_pointer()
FUNCTION = ir.FunctionType(ir.VoidType(), [ir.IntType(64), POINTER, ir.DoubleType()])


class Shared:
    """A function `(number, words, factor)`: the number of a codelet, int64 words in memory, a float64."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.name: str = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.function = function
        self._compiled: Any = None
        # numba stores this call with the machine code of a kernel and makes it before the code is loaded.
        # A partial of module-level names, which can be pickled: the object itself cannot.
        self.load = partial(_load, self.__module__, self.name)

    @property
    def loaded(self) -> bool:
        """Return whether this process has the machine code already."""
        return self._compiled is not None

    @property
    def symbol(self) -> str:
        """The symbol that kernels link to."""
        return f"{self.__module__}.{self.name}"

    def compile(self) -> Any:
        """Return the numba CFunc; compiled, or loaded from the disk cache, and registered at the first call."""
        if self._compiled is None:
            # Marked as used before it is loaded, or another process could remove it in between.
            hold(self.function)
            self._compiled = cached(
                self.function, lambda folder: callback(self.function, SIGNATURE, folder)
            )
            # LLVM finds it by this symbol when it links kernels; compiled code holds the name alone, as
            # addresses differ in each process.
            llvm.add_symbol(self.symbol, self._compiled.address)
        return self._compiled


def call(function: Shared, context: Any, builder: ir.IRBuilder, values: list[Any]) -> None:
    """Emit a call in code that numba generates; the function is loaded together with that code."""
    function.compile()
    # Whoever loads the kernel from disk later must load this first.
    context.active_code_library._reload_init.add(function.load)
    known = builder.module.globals
    symbol = known.get(function.symbol) or ir.Function(builder.module, FUNCTION, function.symbol)
    builder.call(symbol, values)


def _load(module: str, name: str) -> None:
    getattr(importlib.import_module(module), name).compile()


def shared(function: Callable[..., None]) -> Shared:
    """Declare a module-level function as shared by kernels."""
    return declare(Shared(function))


def reached(function: Callable[..., Any]) -> set[Shared]:
    """Return the shared functions that a function calls, itself or by its helpers.

    Found by the names in compiled Python code, and by what it closes over; intrinsics name theirs by an
    attribute `shared`.
    """
    found: set[Shared] = set()
    seen: set[Any] = set()
    waiting: list[Any] = [function]
    while waiting:
        this = waiting.pop()
        for value in _used(getattr(this, "py_func", this)):
            if isinstance(made := getattr(value, "shared", None), Shared):
                found.add(made)
            elif hasattr(value, "py_func") and value not in seen:
                seen.add(value)
                waiting.append(value)
    return found


def _used(function: Callable[..., Any]) -> Iterator[Any]:
    yield from (cell.cell_contents for cell in function.__closure__ or ())
    codes: list[Any] = [function.__code__]
    while codes:
        code = codes.pop()
        # Code of nested functions is a constant of the outer code.
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        yield from (function.__globals__.get(name) for name in code.co_names)
