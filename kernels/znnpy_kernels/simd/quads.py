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
def quad(typingctx: Any, first: Any, second: Any, third: Any, fourth: Any) -> Any:
    """Return four float32 numbers, given as Python's."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = ir.Constant(_QUAD, ir.Undefined)
        for lane, value in enumerate(args):
            single = builder.fptrunc(value, ir.FloatType())
            made = builder.insert_element(made, single, ir.Constant(_I32, lane))
        return made

    return QUAD(*[types.float64] * 4), codegen


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
def quad_sum(typingctx: Any, first: Any, second: Any) -> Any:
    """Return the sums of two times four floats."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.fadd(*args)

    return QUAD(QUAD, QUAD), codegen


@intrinsic
def quad_spread(typingctx: Any, four: Any) -> Any:
    """Return each of four floats four times, as a tuple."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        spread = [builder.shuffle_vector(args[0], args[0], _places(lane)) for lane in range(4)]
        return context.make_tuple(builder, sig.return_type, spread)

    return types.UniTuple(QUAD, 4)(QUAD), codegen


@intrinsic
def quad_lanes(typingctx: Any, four: Any) -> Any:
    """Return four floats as a tuple."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lanes = [builder.extract_element(args[0], ir.Constant(_I32, lane)) for lane in range(4)]
        return context.make_tuple(builder, sig.return_type, lanes)

    return types.UniTuple(types.float32, 4)(QUAD), codegen


def _places(lane: int) -> Any:
    return ir.Constant(ir.VectorType(_I32, 4), [lane] * 4)
