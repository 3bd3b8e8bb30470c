"""Length of decoded LZF data, found without decoding them."""

from __future__ import annotations

from numba import int64

from znnpy_kernels.machine.memory import bytes_
from znnpy_kernels.machine.native import native

# Of the LZF format (Marc Lehmann's liblzf, which HDF5's filter uses): the upper three bits of a code are a
# repetition's length less 2, or 0 for literal bytes, or 7 for a length in the next byte.
LITERAL = 32  # codes below it begin a run of literal bytes
LONG = 7 << 5  # codes from it on begin a repetition whose next byte extends its length


@native("int64(int64, int64)")
def decoded_length(source: int, size: int) -> int:
    """Return how many bytes `size` bytes of LZF data decode to; -1 if they end within a run."""
    data = bytes_(source)
    place = length = 0
    while place < size:
        code = int64(data[place])
        if code < LITERAL:  # `code` + 1 bytes as they are
            place += code + 2
            length += code + 1
        elif code < LONG:  # a repetition of up to 8 bytes
            # A code and an offset; the third byte of long ones is the length.
            place += 2
            length += (code >> 5) + 2
        else:  # a longer repetition, whose next byte counts
            if place + 1 < size:
                length += int64(data[place + 1])
            place += 3
            length += (code >> 5) + 2
    return length if place == size else -1
