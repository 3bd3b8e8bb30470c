"""Compiled functions that are not kernels (worker loop, release, wait), and the C calls that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from znnpy_kernels.machine import guards
from znnpy_kernels.machine.cache import cached
from znnpy_kernels.machine.declarations import declare
from znnpy_kernels.machine.loading import dispatcher

# By symbols of libc, which is in every process: LLVM finds them without an import.
clock_gettime = types.ExternalFunction("clock_gettime", types.intc(types.intc, types.int64))
sched_yield = types.ExternalFunction("sched_yield", types.intc())
sem_init = types.ExternalFunction("sem_init", types.intc(types.int64, types.intc, types.uintc))
sem_post = types.ExternalFunction("sem_post", types.intc(types.int64))
sem_wait = types.ExternalFunction("sem_wait", types.intc(types.int64))
sem_timedwait = types.ExternalFunction("sem_timedwait", types.intc(types.int64, types.int64))

# LP64 of both libraries; `znnpy.scheduler.control_block` asserts that what lies behind has room.
SEMAPHORE_WORDS = 4
"""int64 words that a POSIX semaphore takes: 32 bytes on 64-bit Linux, with glibc and with musl."""


class Native:
    """A function that is compiled at its first call, runs without the GIL, and is kept in the private cache."""

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.name: str = function.__name__
        self.__module__ = function.__module__
        self.function = function
        self.signature = signature
        self._compiled: Any = None

    @property
    def loaded(self) -> bool:
        """Return whether this process has the machine code already."""
        return self._compiled is not None

    def compile(self) -> Any:
        """Return the numba dispatcher, compiled or loaded at the first call."""
        if self._compiled is None:
            self._compiled = cached(
                self.function, lambda folder: dispatcher(self.function, self.signature, folder)
            )
        return self._compiled

    def __call__(self, *values: Any) -> Any:
        return self.compile()(*values)

    def run(self, *values: Any) -> Any:
        """Call for tests: on arrays, or addresses in them, each between guards, as `Kernel.run`."""
        named = dict(zip(self.function.__code__.co_varnames, values, strict=False))
        return guards.run(self.name, named, lambda moved: self(*moved.values()))


def native(signature: Any) -> Callable[[Callable[..., Any]], Native]:
    """Declare a module-level function as compiled with this numba signature, a text or made of its types."""
    return lambda function: declare(Native(function, signature))


@intrinsic
def call_kernel(typingctx: Any, address: Any, arguments: Any, worker: Any) -> Any:
    """Call the kernel at an address with an argument block's address and a worker number."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
        word = ir.IntType(64)
        # The type of every kernel: see `abi.SIGNATURE`.
        kernel = ir.FunctionType(ir.VoidType(), [word.as_pointer(), word]).as_pointer()
        block = builder.inttoptr(args[1], word.as_pointer())
        builder.call(builder.inttoptr(args[0], kernel), [block, args[2]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def call_c(typingctx: Any, address: Any, values: Any) -> Any:
    """Call the C function at an address and return its int; `values`: a tuple of its arguments as int64 words."""
    count = len(values)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
        # All arguments as words: on x86-64 and AArch64 a C int is read from the low half of its register.
        function = ir.FunctionType(ir.IntType(32), [ir.IntType(64)] * count).as_pointer()
        given = [builder.extract_value(args[1], number) for number in range(count)]
        return builder.call(builder.inttoptr(args[0], function), given)

    return types.intc(types.int64, types.UniTuple(types.int64, count)), codegen


@intrinsic
def stack_words(typingctx: Any) -> Any:
    """Return the address of two int64 words on the caller's stack, for C calls that take a timespec."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
        # In the entry block: an alloca within a loop would take more stack at each turn.
        with builder.goto_entry_block():
            words = builder.alloca(ir.ArrayType(ir.IntType(64), 2))
        return builder.ptrtoint(words, ir.IntType(64))

    return types.int64(), codegen
