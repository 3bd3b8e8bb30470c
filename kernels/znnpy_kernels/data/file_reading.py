"""A kernel that reads part of a file to a place in memory, within a step."""

from __future__ import annotations

from typing import Any

from numba import types

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.memory import longs

# Not in `machine.native`, as only this needs it.
_pread = types.ExternalFunction(
    "pread", types.int64(types.intc, types.int64, types.int64, types.int64)
)

AT = words("file offset target bytes failed")


@kernel(AT)
def read_part(args: Any, worker: int) -> None:
    """Read `bytes` from `offset` of an open file to the address `target`; where that fails, `failed` becomes 1.

    `failed`: the address of an int64, which is left alone else. Any number of threads may read one file.
    """
    done = 0
    while done < args[AT.bytes]:
        # The system may give less than it is asked for, 2 GiB at most; nothing at the end of the file.
        count = _pread(
            args[AT.file], args[AT.target] + done, args[AT.bytes] - done, args[AT.offset] + done
        )
        if count <= 0:
            longs(args[AT.failed])[0] = 1
            return
        done += count
