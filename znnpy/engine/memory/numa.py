"""Spreads memory that all workers use over the NUMA nodes that this process runs on, as `numactl --interleave` does.

Pages lie on the node of the thread that touches them first. Feature maps are first touched by workers, but parameters
by the thread that sets them: on a machine of several nodes all workers would read them through one of its memories.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Of <numaif.h>, which the system's C library does not wrap: set and ask for the policy of a range, of the process.
_CALLS = {"x86_64": (237, 239), "aarch64": (235, 236)}
_DEFAULT, _INTERLEAVE = 0, 3
_BITS = 64  # of a mask of nodes: one word, more than machines have nodes


def interleave(memory: NDArray[np.uint8], nodes: Sequence[int]) -> bool:
    """Have the pages of memory that nobody has touched lie on the nodes in turn; return whether they will.

    Only where there are several nodes, and nobody chose a policy for the process (`numactl`). The system may refuse,
    as some containers do: then pages lie where they are touched first.
    """
    calls, page = _CALLS.get(platform.machine()), mmap.PAGESIZE
    first = -(-memory.ctypes.data // page) * page
    size = (memory.ctypes.data + memory.size - first) // page * page
    if (
        len(nodes) < 2
        or max(nodes) >= _BITS
        or size <= 0
        or calls is None
        or platform.system() != "Linux"
    ):
        return False
    return _policy(calls[1]) == _DEFAULT and _bound(calls[0], first, size, nodes)


def _policy(call: int) -> int:
    """Return the policy of this thread, which it has from the process; -1 if the system does not tell."""
    mode = ctypes.c_int(-1)
    failed = ctypes.CDLL(None).syscall(
        ctypes.c_long(call), ctypes.byref(mode), None, ctypes.c_ulong(0), None, ctypes.c_ulong(0)
    )
    return -1 if failed else mode.value


def _bound(call: int, first: int, size: int, nodes: Sequence[int]) -> bool:
    mask = ctypes.c_ulong(sum(1 << node for node in nodes))
    failed = ctypes.CDLL(None).syscall(
        ctypes.c_long(call),
        ctypes.c_void_p(first),
        ctypes.c_ulong(size),
        ctypes.c_int(_INTERLEAVE),
        ctypes.byref(mask),
        # One more than bits of the mask: the system takes one off.
        ctypes.c_ulong(_BITS + 1),
        ctypes.c_uint(0),
    )
    return not failed
