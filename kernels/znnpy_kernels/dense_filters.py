"""Packed filters as dense (out, in, tap) ones, for passes that walk over all input images evenly."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.abi import kernel
from znnpy_kernels.memory import floats


@kernel("source", "target", "width", "outputs", "inputs", "taps", "output_stride")
def dense_filters(args: Any, worker: int) -> None:
    """One piece, packed [tap][input][lane of `width`], into target[output][input][tap].

    `source`: address of the piece; `target`: of filter (first output, first input) of the piece in the
    dense array; `outputs`, `inputs`: real images of the piece; `output_stride`: floats from one
    output's filters to the next. Tasks on different pieces write disjoint memory.
    """
    source, target = floats(args[0]), floats(args[1])
    width, inputs, taps = args[2], args[4], args[5]
    for output in range(args[3]):
        for i in range(inputs):
            at = output * args[6] + i * taps
            for tap in range(taps):
                target[at + tap] = source[(tap * inputs + i) * width + output]
