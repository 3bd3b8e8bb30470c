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
    either,
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
    # Cases of their own: a selection by the slope for each vector would be a branch each, around which all vectors lie
    # on the stack.
    flat = b.and_(b.not_(learned), b.fcmp_ordered("==", slope, ir.Constant(DOUBLE, 0.0)))
    forward = b.icmp_signed("==", field("output"), word(0))

    def bent() -> list[Value]:
        # Rounded to float32 once, as all vectors are.
        given = broadcast(b, b.fptrunc(slope, FLOAT))
        (factor,) = when(b, learned, [given], lambda: [load_vector(b, float_pointer(b, slopes))])
        # Forward, the sign is that of the sum; backward, that of y, which is the same for a positive or zero slope.
        references = when(b, b.not_(forward), sums, outputs)
        return [
            _chosen(b, reference, b.fmul(value, factor), value)
            for value, reference in zip(sums, references, strict=True)
        ]

    def cut() -> list[Value]:
        # Not a product with 0: 0 * inf would be NaN.
        return either(
            b,
            forward,
            lambda: [_chosen(b, value, ZERO_VECTOR, value) for value in sums],
            lambda: [
                _chosen(b, reference, ZERO_VECTOR, value)
                for value, reference in zip(sums, outputs(), strict=True)
            ],
        )

    return when(b, curved, sums, lambda: either(b, flat, cut, bent))


def _chosen(b: ir.IRBuilder, reference: Value, low: Value, value: Value) -> Value:
    """Return `low` in the lanes where the reference is not above zero, elsewhere the value."""
    below = b.fcmp_ordered("<=", reference, ir.Constant(VECTOR, [0.0] * LANES))
    return b.select(below, low, value)
