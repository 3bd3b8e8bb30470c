"""Room for a task on the stack of its kernel."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.errors import RequireLiteralValue
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.simd.codegen import VECTOR
from znnpy_kernels.simd.lanes import LANES


@intrinsic(prefer_literal=True)
def stack_room(typingctx: Any, floats: Any) -> tuple[Signature, Any]:
    """Return the address of room for so many float32 (a constant), aligned to 64 bytes, that hold anything.

    The same room each time within a kernel: of the whole task, not of a turn of a loop.
    """
    if not isinstance(floats, types.IntegerLiteral):
        raise RequireLiteralValue("the size of a kernel's stack is a constant")

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        # Not by `alloca_once`, which fills it with zeros for each task: of 100 KB that took 0.8 of 2.8 to 20 us.
        with builder.goto_entry_block():
            place = builder.alloca(ir.ArrayType(VECTOR, -(-floats.literal_value // LANES)))
        place.align = 64
        return builder.ptrtoint(place, ir.IntType(64))

    return types.int64(floats), codegen
