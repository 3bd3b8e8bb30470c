"""SIMD vectors as numba values: `load(p) * scale + bias` is three instructions.

A `Vector` is an LLVM vector, so nothing depends on the loop vectoriser: kernels may run in place and with any
strides. Arithmetic has no fast-math flags: NaN and Inf propagate, nothing is reordered or contracted; `fma` is
explicit. Addresses are int64 bytes and need only the element's own alignment.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, register_model

from znnpy_kernels.simd.lanes import LANES

Emit = Callable[..., Any]
_I32 = ir.IntType(32)
# Elements that vectors may have, as LLVM has them; a mask is a bit a lane.
_ELEMENTS = {
    types.float32: ir.FloatType(),
    types.float64: ir.DoubleType(),
    types.int32: _I32,
    types.uint16: ir.IntType(16),
    types.uint8: ir.IntType(8),
    types.boolean: ir.IntType(1),
}


class Vector(types.Type):
    """The numba type of LANES elements in one SIMD value."""

    def __init__(self, element: Any) -> None:
        self.element = element
        self.ir = ir.VectorType(_ELEMENTS[element], LANES)
        super().__init__(name=f"Vector({element}, {LANES})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.ir)


# All have LANES elements, so one mask fits every kind.
FLOATS = Vector(types.float32)
DOUBLES = Vector(types.float64)
INTS = Vector(types.int32)
SHORTS = Vector(types.uint16)
OCTETS = Vector(types.uint8)
MASK = Vector(types.boolean)


def _operator(function: Any, result: Any, emitters: dict[Vector, Emit]) -> None:
    """Teach numba one operator for the vectors given; `result` None means the operands' type."""

    class _Template(AbstractTemplate):
        def generic(self, arguments: Any, keywords: Any) -> Any:
            # Both operands of one vector type, or numba looks for another meaning.
            if len(set(arguments)) == 1 and arguments[0] in emitters:
                return signature(result or arguments[0], *arguments)
            return None

    infer_global(function)(_Template)
    for vector, emit in emitters.items():
        count = 1 if function is operator.neg else 2

        def lower(context: Any, builder: Any, sig: Any, args: Any, emit: Emit = emit) -> Any:
            return emit(builder, *args)

        lower_builtin(function, *[vector] * count)(lower)


def _both(method: str) -> dict[Vector, Emit]:
    return {v: lambda b, x, y: getattr(b, method)(x, y) for v in (FLOATS, DOUBLES)}


def _integers(method: str, vectors: tuple[Vector, ...] = (INTS,)) -> dict[Vector, Emit]:
    return {v: lambda b, x, y: getattr(b, method)(x, y) for v in vectors}


def _comparison(symbol: str) -> dict[Vector, Emit]:
    # Ordered comparisons are false with a NaN, and != is true, as Python's.
    ordered = "fcmp_unordered" if symbol == "!=" else "fcmp_ordered"
    found: dict[Vector, Emit] = {
        v: lambda b, x, y: getattr(b, ordered)(symbol, x, y) for v in (FLOATS, DOUBLES)
    }
    found[INTS] = lambda b, x, y: b.icmp_signed(symbol, x, y)
    for vector in (SHORTS, OCTETS):
        # Pixels and counts have no sign.
        found[vector] = lambda b, x, y: b.icmp_unsigned(symbol, x, y)
    return found


_operator(operator.add, None, _both("fadd") | _integers("add", (INTS, SHORTS)))
_operator(operator.sub, None, _both("fsub") | _integers("sub"))
_operator(operator.mul, None, _both("fmul") | _integers("mul"))
_operator(operator.truediv, None, _both("fdiv"))
_operator(operator.neg, None, {v: lambda b, x: b.fneg(x) for v in (FLOATS, DOUBLES)})
_operator(operator.and_, None, _integers("and_", (INTS, MASK)))
_operator(operator.or_, None, _integers("or_", (INTS, OCTETS, MASK)))
_operator(operator.xor, None, _integers("xor", (INTS, MASK)))
_operator(operator.lshift, None, _integers("shl"))
# Logical: shifts bring zeros in, whatever the sign.
_operator(operator.rshift, None, _integers("lshr"))
for _name, _symbol in (
    (operator.lt, "<"),
    (operator.le, "<="),
    (operator.gt, ">"),
    (operator.ge, ">="),
    (operator.eq, "=="),
    (operator.ne, "!="),
):
    _operator(_name, MASK, _comparison(_symbol))


def _function(name: str, emit: Emit, *parameters: Any, result: Any) -> Any:
    """Return an intrinsic with fixed parameter types; `emit(builder, *values)` builds its instructions."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        out = emit(builder, *args)
        # `types.void` needs a value in numba's lowering.
        return context.get_dummy_value() if result is types.void else out

    made = result(*parameters), codegen
    # numba takes the number of arguments from the function's own signature.
    shapes: tuple[Emit, ...] = (
        lambda typingctx: made,
        lambda typingctx, a: made,
        lambda typingctx, a, b: made,
        lambda typingctx, a, b, c: made,
    )
    shape = shapes[len(parameters)]
    shape.__name__ = shape.__qualname__ = name
    return intrinsic(shape)


def _pointer(builder: Any, address: Any, vector: ir.VectorType) -> Any:
    return builder.inttoptr(address, vector.as_pointer())


def _width(vector: ir.VectorType) -> int:
    element = vector.element
    return {ir.FloatType: 4, ir.DoubleType: 8}.get(type(element)) or element.width // 8


def _load(vector: Vector) -> Emit:
    return lambda b, a: b.load(_pointer(b, a, vector.ir), align=_width(vector.ir))


def _store(b: Any, address: Any, value: Any) -> Any:
    return b.store(value, _pointer(b, address, value.type), align=_width(value.type))


def _splat(vector: Vector) -> Emit:
    def emit(b: Any, scalar: Any) -> Any:
        element = vector.ir.element
        if isinstance(element, ir.FloatType):
            # Constants arrive as float64, as numba types Python's floats.
            scalar = b.fptrunc(scalar, element)
        elif not isinstance(element, ir.DoubleType):
            # Integers arrive as int64.
            scalar = b.trunc(scalar, element)
        empty = ir.Constant(vector.ir, ir.Undefined)
        first = b.insert_element(empty, scalar, ir.Constant(_I32, 0))
        zeros = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
        return b.shuffle_vector(first, empty, zeros)

    return emit


def _call(b: Any, name: str, result: Any, *values: Any) -> Any:
    kind = ir.FunctionType(result, [value.type for value in values])
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    return b.call(function, values)


def _llvm(name: str) -> Emit:
    return lambda b, *v: _call(b, f"llvm.{name}.v{LANES}f32", FLOATS.ir, *v)


def _load_masked(b: Any, address: Any, mask: Any) -> Any:
    zero = ir.Constant(FLOATS.ir, [0.0] * LANES)
    values = (_pointer(b, address, FLOATS.ir), ir.Constant(_I32, 4), mask, zero)
    return _call(b, f"llvm.masked.load.v{LANES}f32.p0", FLOATS.ir, *values)


def _load_merged(b: Any, address: Any, mask: Any, others: Any) -> Any:
    values = (_pointer(b, address, FLOATS.ir), ir.Constant(_I32, 4), mask, others)
    return _call(b, f"llvm.masked.load.v{LANES}f32.p0", FLOATS.ir, *values)


def _store_masked(b: Any, address: Any, mask: Any, value: Any) -> Any:
    values = (value, _pointer(b, address, FLOATS.ir), ir.Constant(_I32, 4), mask)
    return _call(b, f"llvm.masked.store.v{LANES}f32.p0", ir.VoidType(), *values)


def _prefetch(b: Any, address: Any) -> Any:
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
    name = "llvm.prefetch.p0"
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    # Reads, into all levels.
    read, keep, data = (ir.Constant(_I32, value) for value in (0, 3, 1))
    return b.call(function, [b.inttoptr(address, byte), read, keep, data])


def _numbers(b: Any) -> Any:
    return ir.Constant(INTS.ir, list(range(LANES)))


def _below(b: Any, count: Any) -> Any:
    wide = ir.VectorType(ir.IntType(64), LANES)
    # Clipped before it is narrowed: a count of 2^32 would be 0 as int32.
    few = b.select(
        b.icmp_signed("<", count, ir.Constant(count.type, LANES)),
        count,
        ir.Constant(count.type, LANES),
    )
    empty = ir.Constant(wide, ir.Undefined)
    first = b.insert_element(empty, few, ir.Constant(_I32, 0))
    zeros = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
    counts = b.trunc(b.shuffle_vector(first, empty, zeros), INTS.ir)
    return b.icmp_signed("<", _numbers(b), counts)


def _total(b: Any, value: Any) -> Any:
    # Without the `reassoc` flag LLVM adds lane after lane: the order is fixed.
    # -0.0 is the neutral element: 0.0 would turn a sum of -0.0 into 0.0.
    zero = ir.Constant(ir.DoubleType(), -0.0)
    return _call(b, f"llvm.vector.reduce.fadd.v{LANES}f64", ir.DoubleType(), zero, value)


def _any(b: Any, mask: Any) -> Any:
    # A mask as one integer: a single comparison, instead of one for each lane.
    bits = b.bitcast(mask, ir.IntType(LANES))
    return b.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))


_address, _count = types.int64, types.int64

load = _function("load", _load(FLOATS), _address, result=FLOATS)
load_shorts = _function("load_shorts", _load(SHORTS), _address, result=SHORTS)
load_octets = _function("load_octets", _load(OCTETS), _address, result=OCTETS)
store = _function("store", _store, _address, FLOATS, result=types.void)
load_doubles = _function("load_doubles", _load(DOUBLES), _address, result=DOUBLES)
store_doubles = _function("store_doubles", _store, _address, DOUBLES, result=types.void)
store_shorts = _function("store_shorts", _store, _address, SHORTS, result=types.void)
store_octets = _function("store_octets", _store, _address, OCTETS, result=types.void)
load_masked = _function("load_masked", _load_masked, _address, MASK, result=FLOATS)
load_merged = _function("load_merged", _load_merged, _address, MASK, FLOATS, result=FLOATS)
store_masked = _function("store_masked", _store_masked, _address, MASK, FLOATS, result=types.void)

prefetch = _function("prefetch", _prefetch, _address, result=types.void)

splat = _function("splat", _splat(FLOATS), types.float64, result=FLOATS)
splat_int = _function("splat_int", _splat(INTS), types.int64, result=INTS)
splat_short = _function("splat_short", _splat(SHORTS), types.int64, result=SHORTS)
splat_octet = _function("splat_octet", _splat(OCTETS), types.int64, result=OCTETS)
zero_doubles = _function(
    "zero_doubles", lambda b: ir.Constant(DOUBLES.ir, [0.0] * LANES), result=DOUBLES
)
lane_numbers = _function("lane_numbers", _numbers, result=INTS)
below = _function("below", _below, _count, result=MASK)

fma = _function("fma", _llvm("fma"), FLOATS, FLOATS, FLOATS, result=FLOATS)
sqrt = _function("sqrt", _llvm("sqrt"), FLOATS, result=FLOATS)
absolute = _function("absolute", _llvm("fabs"), FLOATS, result=FLOATS)
select = _function(
    "select", lambda b, m, x, y: b.select(m, x, y), MASK, FLOATS, FLOATS, result=FLOATS
)
select_shorts = _function(
    "select_shorts", lambda b, m, x, y: b.select(m, x, y), MASK, SHORTS, SHORTS, result=SHORTS
)
select_octets = _function(
    "select_octets", lambda b, m, x, y: b.select(m, x, y), MASK, OCTETS, OCTETS, result=OCTETS
)
any_lane = _function("any_lane", _any, MASK, result=types.boolean)

bits = _function("bits", lambda b, x: b.bitcast(x, INTS.ir), FLOATS, result=INTS)
from_bits = _function("from_bits", lambda b, x: b.bitcast(x, FLOATS.ir), INTS, result=FLOATS)
to_doubles = _function("to_doubles", lambda b, x: b.fpext(x, DOUBLES.ir), FLOATS, result=DOUBLES)
to_floats = _function("to_floats", lambda b, x: b.fptrunc(x, FLOATS.ir), DOUBLES, result=FLOATS)
int_to_float = _function("int_to_float", lambda b, x: b.sitofp(x, FLOATS.ir), INTS, result=FLOATS)
total = _function("total", _total, DOUBLES, result=types.float64)
