"""Raw memory in kernels: typed pointers from int64 addresses, floats from argument words, uncounted arrays."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic


def _pointer_intrinsic(name: str, element: Any) -> Any:
    def pointer(typingctx: Any, address: Any) -> tuple[Signature, Any]:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(sig.return_type))

        return types.CPointer(element)(types.int64), codegen

    pointer.__name__ = name
    return intrinsic(pointer)


floats = _pointer_intrinsic("floats", types.float32)
doubles = _pointer_intrinsic("doubles", types.float64)
longs = _pointer_intrinsic("longs", types.int64)
ints = _pointer_intrinsic("ints", types.int32)
shorts = _pointer_intrinsic("shorts", types.uint16)
# With an underscore, as Python has `bytes`.
bytes_ = _pointer_intrinsic("bytes_", types.uint8)


@intrinsic
def address_of(typingctx: Any, pointer: Any) -> tuple[Signature, Any]:
    """Return the address that a typed pointer holds."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        return builder.ptrtoint(args[0], ir.IntType(64))

    return types.int64(pointer), codegen


@intrinsic
def float_argument(typingctx: Any, word: Any) -> Any:
    """Return the float64 whose bits an argument word carries."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic
def borrowed(typingctx: Any, array: Any) -> tuple[Signature, Any]:
    """Return the same array without ownership of its memory, so that slices cost no atomic reference count.

    The caller must hold the array meanwhile, as callers hold their arguments.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        made = context.make_array(array)(context, builder, args[0])
        # Without a meminfo numba has nothing to count.
        made.meminfo = ir.Constant(made.meminfo.type, None)
        made.parent = ir.Constant(made.parent.type, None)
        return made._getvalue()

    return array(array), codegen
