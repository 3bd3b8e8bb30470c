"""One signature for every kernel: `void kernel(int64* args, int64 worker)`.

A kernel is declared with the names of its argument words and reads them by name; Python code packs a
block by name. Nobody counts words, so their order may change:

    AT = words("source target count scale:float")

    @kernel(AT)
    def scale(args, worker):
        for i in range(args[AT.count]): ...

    block = scale.arguments(source=a.address, target=b.address, count=n, scale=0.5)

Kernels that differ in a number or a helper alone are a family, made by one factory, each with a name of its own:

    def _widened(lanes: int) -> Kernel:
        @kernel(AT, name=f"widened_{lanes}")
        def widened(args, worker):
            _rows(args, lanes)
        return widened

    WIDENED = {lanes: _widened(lanes) for lanes in (4, 8)}

What a factory is given are constants of the compiled code: numbers, texts, helpers (`inlined`), tuples of these.

Addresses and sizes travel as int64, floats as the bit pattern of a float64 (`memory.float_argument`
reads them back). Compilation happens at the first use of `.address`, and numba's disk cache serves
the next process.
"""

from __future__ import annotations

import struct
from collections import namedtuple
from collections.abc import Callable
from typing import Any

from numba import types

from znnpy_kernels.machine import guards
from znnpy_kernels.machine.cache import cached
from znnpy_kernels.machine.declarations import declare
from znnpy_kernels.machine.loading import callback

# As every kernel: an argument block's words and the worker's number.
SIGNATURE = types.void(types.CPointer(types.int64), types.int64)


class Kernel:
    """A lazily compiled task function and the names of the int64 words of its argument block."""

    def __init__(self, function: Callable[..., None], words: Any) -> None:
        self.name: str = function.__name__
        # Like a function, so that Sphinx and `source_hash` find where it is defined.
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.function = function
        self.words = words
        self.fields: tuple[str, ...] = words._fields
        self._compiled: Any = None

    @property
    def loaded(self) -> bool:
        """Return whether this process holds the machine code already."""
        return self._compiled is not None

    @property
    def address(self) -> int:
        """Address of the machine code; compiles, or loads from the disk cache, at the first call."""
        return int(self.compile().address)

    def compile(self) -> Any:
        """The numba CFunc; `CFunc.cache_hits` tells whether it came from disk."""
        if self._compiled is None:
            self._compiled = cached(
                self.function, lambda folder: callback(self.function, SIGNATURE, folder)
            )
        return self._compiled

    def arguments(self, **values: float) -> list[int]:
        """Pack one argument block; every field must be given, none may be unknown."""
        # A word too many is as wrong as one too few: it would be a name that was misspelt.
        if values.keys() != set(self.fields):
            missing = sorted(set(self.fields) - values.keys())
            unknown = sorted(values.keys() - set(self.fields))
            raise TypeError(f"kernel {self.name}: missing {missing}, unknown {unknown}")
        return [
            float_bits(values[name]) if name in self.words.floats else int(values[name])
            for name in self.fields
        ]

    def run(self, worker: int = 0, **values: Any) -> None:
        """Run once on the calling thread, for tests: on arrays, or addresses in them, each between guards.

        Raises OutsideError where something was written beside an array; see `guarded`.
        """
        guards.run(self.name, values, lambda moved: self.call(worker, **moved))

    def call(self, worker: int = 0, **values: float) -> None:
        """Run once on the calling thread, on the addresses that it is given."""
        # Imported here: only tests call kernels so, and all else need not load it.
        import ctypes

        # One word at least: ctypes has no arrays of none.
        block = (ctypes.c_int64 * max(1, len(self.fields)))(*self.arguments(**values))
        self.compile().ctypes(block, worker)


def kernel(words: Any, *, name: str = "") -> Callable[[Callable[..., None]], Kernel]:
    """Declare a function as a kernel with these argument words.

    `name`: of one of a family, where the function is made by a factory at module level; else its own.
    Raises ValueError if one of a family has no name, or one that another has.
    """

    def declared_as(function: Callable[..., None]) -> Kernel:
        if function.__closure__ and not name:
            raise ValueError(f"kernel {function.__qualname__} is one of a family: it needs a name")
        if name:  # LLVM finds machine code by it
            function.__name__ = function.__qualname__ = name
        return declare(Kernel(function, words))

    return declared_as


def words(*parts: Any) -> Any:
    """Argument words in their order: where each stands, so that `args[AT.source]` reads `source`.

    `parts`: names with spaces between them, `name:float` for a float, or the words of another kernel.
    Gives a named tuple of constants, which compiled code takes as they are; its `floats` are the
    names of those that are floats.
    """
    given = [name for part in parts for name in declared(part)]
    names = [name.removesuffix(":float") for name in given]
    # A class of its own for each kernel: numba types a named tuple by its class, and takes its values as
    # constants here.
    named: Any = namedtuple  # whose names mypy would have to know
    made = named("Words", names)
    made.floats = frozenset(set(names) - set(given))
    return made(*range(len(names)))


def declared(part: Any) -> list[str]:
    """Names as `words` takes them, of a text or of the words of a kernel."""
    if isinstance(part, str):
        return part.split()
    return [f"{name}:float" if name in part.floats else name for name in part._fields]


def float_bits(value: float) -> int:
    """The bit pattern of a float64 as a signed 64-bit integer."""
    # Little-endian both ways: the bits of the double, read as the int64 that `memory.float_argument` reads
    # back.
    return int(struct.unpack("<q", struct.pack("<d", value))[0])
