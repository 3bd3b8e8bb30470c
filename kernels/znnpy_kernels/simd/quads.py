"""Vectors of four floats, whatever the CPU's width: what four neighbouring values and their weights fill."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

_QUAD = ir.VectorType(ir.FloatType(), 4)
_I32 = ir.IntType(32)


class _Quad(types.Type):
    """The numba type of four floats in one SIMD value."""

    def __init__(self) -> None:
        super().__init__(name="Quad")


@register_model(_Quad)
class _QuadModel(models.PrimitiveModel):
    def __init__(self, manager: Any, quad: _Quad) -> None:
        super().__init__(manager, quad, _QUAD)


QUAD = _Quad()


@intrinsic
def load_quad(typingctx: Any, address: Any) -> Any:
    """Return the four floats at an address in bytes, which needs the alignment of one."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _QUAD.as_pointer()), align=4)

    return QUAD(types.int64), codegen


@intrinsic
def quad_splat(typingctx: Any, value: Any) -> Any:
    """Return a float32 four times."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        empty = ir.Constant(_QUAD, ir.Undefined)
        first = builder.insert_element(empty, args[0], ir.Constant(_I32, 0))
        return builder.shuffle_vector(first, empty, _places(0))

    return QUAD(types.float32), codegen


@intrinsic
def quad_product(typingctx: Any, first: Any, second: Any) -> Any:
    """Return the products of two times four floats."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.fmul(*args)

    return QUAD(QUAD, QUAD), codegen


@intrinsic
def quad_fused(typingctx: Any, first: Any, second: Any, third: Any) -> Any:
    """Return the products of two times four floats, and four more added, rounded once."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(_QUAD, [_QUAD] * 3)
        name = "llvm.fma.v4f32"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        return builder.call(function, args)

    return QUAD(QUAD, QUAD, QUAD), codegen


@intrinsic
def store_quad(typingctx: Any, address: Any, four: Any) -> Any:
    """Store four floats at an address in bytes, which needs the alignment of one."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], _QUAD.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, QUAD), codegen


@intrinsic
def quad_turned(typingctx: Any, first: Any, second: Any, third: Any, fourth: Any) -> Any:
    """Return the first of each of four times four floats, the second of each, and so on, as a tuple."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        def mixed(one: Any, other: Any, *lanes: int) -> Any:
            return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(_I32, 4), lanes))

        one, two, three, four = args
        low, high = mixed(one, two, 0, 4, 1, 5), mixed(three, four, 0, 4, 1, 5)
        lower, higher = mixed(one, two, 2, 6, 3, 7), mixed(three, four, 2, 6, 3, 7)
        turned = [
            mixed(*pair, *lanes)
            for pair in ((low, high), (lower, higher))
            for lanes in ((0, 1, 4, 5), (2, 3, 6, 7))
        ]
        return context.make_tuple(builder, sig.return_type, turned)

    return types.UniTuple(QUAD, 4)(*[QUAD] * 4), codegen


@intrinsic
def quad_lanes(typingctx: Any, four: Any) -> Any:
    """Return four floats as a tuple."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lanes = [builder.extract_element(args[0], ir.Constant(_I32, lane)) for lane in range(4)]
        return context.make_tuple(builder, sig.return_type, lanes)

    return types.UniTuple(types.float32, 4)(QUAD), codegen


def _places(lane: int) -> Any:
    return ir.Constant(ir.VectorType(_I32, 4), [lane] * 4)
