"""Atomic loads, stores, additions and swaps on raw addresses, each with its memory ordering in its name.

Orderings are those of C11: relaxed (LLVM's monotonic), acquire, release, acq_rel, seq_cst. Addresses are int64 and
aligned to the operand. Each use says why its ordering is strong enough.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from znnpy_kernels.machine.denormals import IS_ARM

# Operands are words of the control block or, for slots of deques, half words.
_WORD = types.int64
# LLVM's types by numba's: only these two have atomic accesses here.
_BITS = {types.int32: ir.IntType(32), types.int64: ir.IntType(64)}


def _pointer(builder: ir.IRBuilder, address: Any, element: Any) -> Any:
    return builder.inttoptr(address, _BITS[element].as_pointer())


def _load(ordering: str, element: Any) -> Any:
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
            size = _BITS[element].width // 8
            # Atomic accesses must name an alignment of at least their size, or LLVM makes them calls of a
            # library.
            return builder.load_atomic(_pointer(builder, args[0], element), ordering, size)

        return element(_WORD), codegen

    return intrinsic(load)


def _store(ordering: str, element: Any) -> Any:
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
            size = _BITS[element].width // 8
            pointer = _pointer(builder, args[0], element)
            builder.store_atomic(args[1], pointer, ordering, size)
            return context.get_dummy_value()

        return types.void(_WORD, element), codegen

    return intrinsic(store)


def _read_modify_write(operation: str, ordering: str) -> Any:
    def update(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
            pointer = _pointer(builder, args[0], _WORD)
            return builder.atomic_rmw(operation, pointer, args[1], ordering)

        return _WORD(_WORD, _WORD), codegen

    return intrinsic(update)


def _compare_and_swap(success: str, failure: str) -> Any:
    def swap(typingctx: Any, address: Any, expected: Any, wanted: Any) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
            pointer = _pointer(builder, args[0], _WORD)
            pair = builder.cmpxchg(pointer, args[1], args[2], success, failure)
            # Only whether it succeeded: users never need the value found, since a failed swap is never repeated
            # as it is.
            return builder.extract_value(pair, 1)

        return types.boolean(_WORD, _WORD, _WORD), codegen

    return intrinsic(swap)


load_relaxed = _load("monotonic", types.int64)
load_acquire = _load("acquire", types.int64)
load_seq_cst = _load("seq_cst", types.int64)
load_relaxed_32 = _load("monotonic", types.int32)
store_relaxed = _store("monotonic", types.int64)
store_release = _store("release", types.int64)
store_seq_cst = _store("seq_cst", types.int64)
# 32-bit accesses are for the slots of deques, which hold entries of half a word.
store_relaxed_32 = _store("monotonic", types.int32)
add_relaxed = _read_modify_write("add", "monotonic")
add_acq_rel = _read_modify_write("add", "acq_rel")
"""add_*: returns the value before."""
exchange_acq_rel = _read_modify_write("xchg", "acq_rel")
# Failure is relaxed: nothing is read through a swap that failed (see the table in the README of
# `znnpy/scheduler`).
swap_acq_rel = _compare_and_swap("acq_rel", "monotonic")
swap_seq_cst = _compare_and_swap("seq_cst", "monotonic")
"""swap_*(address, expected, wanted): whether the word held `expected`; never fails spuriously."""


@intrinsic
def fence_seq_cst(typingctx: Any) -> Any:
    """Emit a sequentially consistent fence."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def pause(typingctx: Any) -> Any:
    """Emit the CPU's hint that this is a spin loop."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
        name, operands = "llvm.x86.sse2.pause", []
        if IS_ARM:
            # `hint #1` is YIELD.
            name, operands = "llvm.aarch64.hint", [ir.Constant(ir.IntType(32), 1)]
        kind = ir.FunctionType(ir.VoidType(), [operand.type for operand in operands])
        known = builder.module.globals.get(name)
        builder.call(known or ir.Function(builder.module, kind, name), operands)
        return context.get_dummy_value()

    return types.void(), codegen
