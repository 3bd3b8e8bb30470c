"""Raw memory from numba code: int64 addresses become typed pointers, argument words become floats."""

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
bytes_ = _pointer_intrinsic("bytes_", types.uint8)


@intrinsic
def float_argument(typingctx: Any, word: Any) -> Any:
    """The float64 whose bits an argument word carries."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen
