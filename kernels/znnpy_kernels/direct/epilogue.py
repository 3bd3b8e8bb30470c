"""Epilogue of direct convolution: bias and activation function, or their gradients, applied to finished sums.

Forward, y = f(sum + bias); backward, target = sum * f'(y) with y the values of the node that the
gradient is for, and the sum of target for the bias. f is linear, relu or leaky relu: where y <= 0
its slope is `slope`, else 1.

Argument words, beside those of the kernels that use them:

    bias                        one float for each output channel of the group; 0: none
    slope                       float64: 1 linear, 0 relu, else leaky relu
    slopes                      forward: address of LANES floats, the slope in all lanes, in place of `slope`; 0: none
    output, output_block, output_z, output_y    values y, laid out like the target; address 0: forward
    bias_gradient               LANES floats for each block of the target, which the task overwrites with
                                sums of what it stores; 0: not wanted
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from znnpy_kernels.machine.abi import words
from znnpy_kernels.simd.codegen import (
    DOUBLE,
    FLOAT,
    VECTOR,
    ZERO_VECTOR,
    Value,
    add,
    broadcast,
    float_pointer,
    load_vector,
    when,
    word,
)
from znnpy_kernels.simd.lanes import LANES

EPILOGUE = words("bias slope:float slopes output output_block output_z output_y bias_gradient")
# Without bias, with the identity: all addresses 0.
PLAIN: dict[str, float] = dict.fromkeys(EPILOGUE._fields, 0) | {"slope": 1.0}
Field = Callable[[str], Value]
Emit = Callable[[], list[Value]]


def finished(
    builder: ir.IRBuilder, field: Field, sums: Sequence[Value], biases: Emit, outputs: Emit
) -> list[Value]:
    """Return vectors of sums with bias and activation function, or the activation function's gradient, applied.

    `biases` and `outputs` emit the loads of one vector for each sum.
    """
    b = builder
    sums = when(
        b,
        b.icmp_signed("!=", field("bias"), word(0)),
        sums,
        lambda: [add(b, v, bias) for v, bias in zip(sums, biases(), strict=True)],
    )
    slope, slopes = b.bitcast(field("slope"), DOUBLE), field("slopes")
    learned = b.icmp_signed("!=", slopes, word(0))
    # Slope 1 is the identity: no comparison, no memory of y. Unordered, so that NaN is not taken for 1.
    curved = b.or_(learned, b.fcmp_unordered("!=", slope, ir.Constant(DOUBLE, 1.0)))

    def transferred() -> list[Value]:
        # Rounded to float32 once, as all vectors are.
        given = broadcast(b, b.fptrunc(slope, FLOAT))
        (factor,) = when(b, learned, [given], lambda: [load_vector(b, float_pointer(b, slopes))])
        flat = b.fcmp_ordered("==", slope, ir.Constant(DOUBLE, 0.0))
        flat = b.and_(flat, b.not_(learned))
        return _transferred(b, field, sums, flat, factor, outputs)

    return when(b, curved, sums, transferred)


def _transferred(
    b: ir.IRBuilder,
    field: Field,
    sums: list[Value],
    flat: Value,
    factor: Value,
    outputs: Emit,
) -> list[Value]:
    backward = b.icmp_signed("!=", field("output"), word(0))
    # Forward, the sign is that of the sum; backward, that of y, which is the same for a positive or zero slope.
    references = when(b, backward, sums, outputs)
    results = []
    for value, reference in zip(sums, references, strict=True):
        low = b.select(flat, ZERO_VECTOR, b.fmul(value, factor))  # 0 * inf would be NaN
        below = b.fcmp_ordered("<=", reference, ir.Constant(VECTOR, [0.0] * LANES))
        results.append(b.select(below, low, value))
    return results
