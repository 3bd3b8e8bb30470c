"""Packed filters as dense (out, in, tap) ones, for passes that walk over all input images evenly."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.memory import floats

AT = words("source target width outputs inputs taps output_stride")


@kernel(AT)
def dense_filters(args: Any, worker: int) -> None:
    """One piece, packed [tap][input][lane of `width`], into target[output][input][tap].

    `source`: address of the piece; `target`: of filter (first output, first input) of the piece in the
    dense array; `outputs`, `inputs`: real images of the piece; `output_stride`: floats from one
    output's filters to the next. Tasks on different pieces write disjoint memory.
    """
    source, target = floats(args[AT.source]), floats(args[AT.target])
    width, inputs, taps = args[AT.width], args[AT.inputs], args[AT.taps]
    for output in range(args[AT.outputs]):
        for i in range(inputs):
            at = output * args[AT.output_stride] + i * taps
            for tap in range(taps):
                target[at + tap] = source[(tap * inputs + i) * width + output]
