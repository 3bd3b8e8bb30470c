"""A kernel that reads filters from a file, as users have them, and packs them, within a step."""

from __future__ import annotations

import errno
from typing import Any

from numba import types

from znnpy_kernels.direct.filter_packing import pack_block
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import ints, longs
from znnpy_kernels.simd.lanes import LANES

# Not in `machine.native`, as only this needs them: the second is what `errno` stands for in C, with glibc and musl.
_pread = types.ExternalFunction(
    "pread", types.int64(types.intc, types.int64, types.int64, types.int64)
)
_errno = types.ExternalFunction("__errno_location", types.int64())
INTERRUPTED = errno.EINTR

AT = words("failed place target outputs inputs taps first_group last_group scratch scratch_worker")
NEAR_FLOATS = 64 << 10
"""Of a worker's scratch: rows of a file lie there while they are packed, in a near cache."""


def scratch_floats(taps: int) -> int:
    """Return the floats of scratch that a worker needs for filters of so many taps."""
    return max(NEAR_FLOATS, 2 * LANES * LANES * taps)


@inlined
def _read(file: int, target: int, size: int, offset: int) -> bool:
    """Read `size` bytes from an offset of an open file; return whether they were there."""
    done = 0
    while done < size:
        # The system may give less than it is asked for, 2 GiB at most; nothing at the end of the file.
        count = _pread(file, target + done, size - done, offset + done)
        if count > 0:
            done += count
        # Of a network file system a signal may end the call before anything was read.
        elif count == 0 or ints(_errno())[0] != INTERRUPTED:
            return False
    return True


@kernel(AT)
def read_filters(args: Any, worker: int) -> None:
    """Read the filters of some groups of outputs, float32 (out, in, tap), and write them packed for the forward pass.

    `failed`: address of a word that becomes 1 where they cannot be read, and is left alone else; `place`: of three
    int64, the descriptor of an open file, the byte at which the filters begin, and the bytes from one output's to the
    next; `target`: of the packed filters of all of the layer, of inputs that lie in blocks. Groups (`output_groups`)
    first_group..last_group are written, each by one task. Any number of threads may read one file.
    """
    place, taps, inputs = longs(args[AT.place]), args[AT.taps], args[AT.inputs]
    rows = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
    for group in range(args[AT.first_group], args[AT.last_group]):
        first = 2 * LANES * group
        outputs = min(2 * LANES, args[AT.outputs] - first)
        vectors = (outputs + LANES - 1) // LANES
        width = vectors * LANES
        # As many blocks of inputs as there is room for at once.
        together = max(1, args[AT.scratch_worker] // (width * LANES * taps)) * LANES
        for low in range(0, inputs, together):
            row = 4 * taps * min(together, inputs - low)
            for output in range(outputs):
                offset = place[1] + (first + output) * place[2] + 4 * taps * low
                if not _read(place[0], rows + output * row, row, offset):
                    longs(args[AT.failed])[0] = 1
                    return
            for block in range(low, min(low + together, inputs), LANES):
                count = min(LANES, inputs - block)
                piece = args[AT.target] + 4 * taps * (first * inputs + block * width)
                source = rows + 4 * taps * (block - low)
                pack_block(source, row, 4 * taps, outputs, count, taps, piece)
