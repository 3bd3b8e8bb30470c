"""Stores of whole vectors that bypass the caches: the target's cache lines are not read first.

For targets that no cache holds until they are read. Only a fence orders such stores before later ones: a kernel that
uses them ends with `atomics.fence_seq_cst`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.simd.vectors import FLOATS


def stream_vector(builder: ir.IRBuilder, value: Any, pointer: Any) -> None:
    """Store LANES floats, bypassing caches, to a pointer that is aligned to their bytes."""
    place = builder.bitcast(pointer, FLOATS.ir.as_pointer())
    made = builder.store(value, place, align=VECTOR_BYTES)
    # Metadata of one element, 1, is what LLVM's `nontemporal` asks for.
    one = ir.Constant(ir.IntType(32), 1)
    made.set_metadata("nontemporal", builder.module.add_metadata([one]))


@intrinsic
def stream(typingctx: Any, address: Any, value: Any) -> Any:
    """Store LANES floats at an address that is a multiple of their bytes."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
        stream_vector(builder, args[1], builder.inttoptr(args[0], FLOATS.ir.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, FLOATS), codegen
