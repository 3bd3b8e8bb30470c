"""Machine code of kernels as bytes: taken from the cache once, linked by processes that import no module of kernels.

To load a kernel as numba keeps it takes 3 ms, beside the modules that declare it, each helper of which is one of
numba's objects. What is to be called by address alone needs its code and a symbol.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, NamedTuple
from zlib import crc32

from llvmlite import binding as llvm
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys

from znnpy_kernels.machine import cache
from znnpy_kernels.machine.abi import SIGNATURE, Kernel
from znnpy_kernels.machine.linking import known
from znnpy_kernels.machine.loading import _QuickCache


class Code(NamedTuple):
    """A kernel's machine code, an object file, and the symbol by which it is called."""

    symbol: str
    content: bytes


class Linked(Kernel):
    """A kernel by its address and name (`module:name`) alone, whose declaration this process need not know."""

    def __init__(self, name: str, address: int) -> None:
        self.__module__, _, self.name = name.partition(":")
        self._address = address

    @property
    def loaded(self) -> bool:
        """True."""
        return True

    @property
    def address(self) -> int:
        """Address of the machine code."""
        return self._address


def code_of(kernel: Kernel) -> Code | None:
    """Return the machine code of a kernel, which is compiled if need be.

    None where it needs more than that (functions that are loaded by themselves, objects of Python), where the cache
    does not have it or has it damaged, and with versions of numba whose files are not known.
    """
    if not known():
        return None
    kernel.compile()
    try:
        return _stored(kernel)
    except Exception:
        return None  # damaged files raise anything


def _stored(kernel: Kernel) -> Code | None:
    """Return the machine code of a kernel as the cache has it now, with the symbol that it has there.

    Another process may have compiled the same kernel at the same time, under a symbol of its own, and written it last.
    """
    codegen = cpu_target.target_context.codegen()
    files: Any = _QuickCache(kernel.function, cache.directory(kernel.function))
    found = files._cache_file.load(files._index_key(SIGNATURE, codegen))
    if found is None:
        return None
    checksum, kept = found
    if crc32(kept) != checksum:
        return None
    (_, kind, parts), described, own, *_, others, environments = pickle.loads(kept)
    if kind != "object" or others or any(it.consts for it in (own, *environments)):
        return None
    return Code(described.llvm_cfunc_wrapper_name, parts[0])


def linked(codes: Mapping[str, Code]) -> dict[str, Linked]:
    """Return kernels by their names (`module:name`), linked and ready to be called; they stay until the process ends.

    `codes`: what `code_of` has returned with these very versions of sources, numba and LLVM, for this CPU: another
    symbol that the code asks for and that is not found would end the process. Of one name the first stays, and what
    has no such symbol itself is left out.
    """
    new = {name: it for name, it in codes.items() if name not in _linked}
    if new:
        rtsys.initialize(cpu_target.target_context)  # whose symbols code may ask for
        engine = _engine()
        for code in new.values():
            engine.add_object_file(llvm.ObjectFileRef.from_data(code.content))
        engine.finalize_object()
        addresses = {name: engine.get_function_address(it.symbol) for name, it in new.items()}
        _linked.update({name: Linked(name, it) for name, it in addresses.items() if it})
    return {name: _linked[name] for name in codes if name in _linked}


def _engine() -> Any:
    """Return an engine of its own: in numba's, the same kernels may be loaded by their declarations later."""
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(codemodel="jitdefault", jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    _engines.append(engine)
    return engine


_engines: list[Any] = []
_linked: dict[str, Linked] = {}
"""By name: a process takes code of one version of sources alone, and models follow one another."""
