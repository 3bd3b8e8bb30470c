"""Compiles functions, or loads them from numba's cache without importing what only its compiler needs.

Before it loads the first function, numba imports and registers all that it can compile, which takes 0.3 to 0.5 s,
longer than to load all kernels of a network. Machine code needs none of that, only the addresses of numba's runtime.
A function that must be compiled goes through the compiler as usual.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

from llvmlite import binding as llvm
from llvmlite import ir
from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.ccallback import CFunc
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from znnpy_kernels.machine.linking import WholeCompiler, known


class _Files(CompileResultCacheImpl):
    """The place of a function in numba's cache: the given folder, for as long as that exists.

    The folder's name identifies the function's source (`cache`), so numba need not look at its file.
    """

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self._locator = self
        self._folder = str(folder)
        self._filename_base = self.get_filename_base(function.__qualname__, sys.abiflags)

    def get_cache_path(self) -> str:
        return self._folder

    def ensure_cache_path(self) -> None:
        Path(self._folder).mkdir(exist_ok=True)

    def get_source_stamp(self) -> str:
        # Empty, the same for all: the folder's name identifies the source.
        return ""

    # Told apart by the folder, not by the line where a function begins.
    def get_disambiguator(self) -> str:
        return "0"

    def reduce(self, cres: Any) -> Any:
        library, *others = super().reduce(cres)
        kept = dumps((without_bitcode(library), *others))
        return crc32(kept), kept

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        # Machine code with a wrong byte would end the process, or do something else.
        checksum, kept = payload
        if crc32(kept) != checksum:
            raise ValueError(f"{self._folder}: machine code is not what was written")
        return super().rebuild(target_context, pickle.loads(kept))


def without_bitcode(library: Any) -> Any:
    """Return a library as numba stores it, with the names of what it defines in place of its bitcode.

    numba stores bitcode to link a function into others. What is kept here is called by address alone, and to parse it
    took more than half of the time of loading. What says the names is a module again, so that numba loads it as ever.
    """
    name, kind, data = library
    if not known() or kind != "object":
        return library
    code, bitcode = data
    whole, names = llvm.parse_bitcode(bitcode), ir.Module()
    for value in (*whole.functions, *whole.global_variables):
        if not value.is_declaration:
            ir.GlobalVariable(names, ir.IntType(8), value.name).initializer = ir.IntType(8)(0)
    return name, kind, (code, llvm.parse_assembly(str(names)).as_bitcode())


class _QuickCache(FunctionCache):
    """numba's cache of one function, without the refresh of all contexts.

    What the function closes over is in the folder's name: numba would pickle it, differently in each process.
    """

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        # numba chooses the locator by this class; here it is given.
        self._impl_class = lambda function: _Files(function, folder)
        super().__init__(function)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        # Signature and CPU, without numba's hash of what the function closes over.
        return sig, codegen.magic_tuple(), ""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if not known():
            return super().load_overload(sig, target_context)
        # The addresses of numba's runtime are all that loaded code needs; the rest of the refresh is for the
        # compiler.
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


class _Callback(CFunc):
    """A callback that, whenever it is loaded, first loads the functions that it calls by name (`shared_functions`)."""

    def _compile_uncached(self) -> Any:
        made: Any = super()._compile_uncached()  # type: ignore[misc]
        made.library._ensure_finalized()  # which links the helpers, and so finds all that they call
        # What the library was told to load by `shared_functions.call`: kept with the code, and done again
        # wherever that is loaded.
        made.reload_init.extend(made.library._reload_init)
        return made


def kept(function: Callable[..., Any], folder: Path) -> bool:
    """Return whether a folder holds a function's machine code for the target CPU; False if damaged."""
    wanted = cpu_target.target_context.codegen().magic_tuple()
    try:
        index = _QuickCache(function, folder)._cache_file._load_index()
        return any(cpu == wanted for _, cpu, _ in index)
    except Exception:
        # Damaged files raise anything; they count as missing and are compiled anew.
        return False


def callback(function: Callable[..., Any], signature: Any, folder: Path) -> Any:
    """Return `numba.cfunc` of a function, kept in a folder."""
    made: Any = _Callback(
        function,
        (signature.args, signature.return_type),
        {},
        {"nopython": True},
        pipeline_class=WholeCompiler,
    )
    made._cache = _QuickCache(function, folder)
    made.compile()
    _forget(made._library)
    return made


def _forget(library: Any) -> None:
    """Free what numba keeps of a function to link it into others, half a megabyte of each that it has compiled.

    Callbacks are called by address alone.
    """
    code = getattr(library, "_shared_module", None)
    if known() and code is not None:
        code.close()
        library._shared_module = None


def dispatcher(function: Callable[..., Any], signature: Any, folder: Path) -> Any:
    """Return `numba.njit` of a function with one signature, without the GIL, kept in a folder."""
    made = njit(nogil=True, error_model="numpy", pipeline_class=WholeCompiler)(function)
    made._cache = _QuickCache(function, folder)
    made.compile(signature)
    # One signature is all there is: a call with other types is an error, not another compilation.
    made.disable_compile()
    return made
