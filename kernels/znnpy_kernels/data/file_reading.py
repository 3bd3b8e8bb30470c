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

AT = words("file offset target bytes")


@kernel(AT)
def read_part(args: Any, worker: int) -> None:
    """Read `bytes` from `offset` of an open file to the address `target`.

    `file`: the address of two int64, its descriptor and a word that becomes 1 where that fails, and is left alone
    else. Any number of threads may read one file.
    """
    file, done = longs(args[AT.file]), 0
    while done < args[AT.bytes]:
        # The system may give less than it is asked for, 2 GiB at most; nothing at the end of the file.
        count = _pread(
            file[0], args[AT.target] + done, args[AT.bytes] - done, args[AT.offset] + done
        )
        if count <= 0:
            file[1] = 1
            return
        done += count
