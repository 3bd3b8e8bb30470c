"""Calls to the disk that fail, by `dying.c`, which is preloaded."""

from __future__ import annotations

import ctypes
import errno
from typing import Any

NEVER = 1 << 40
FAILURES = {"full": errno.ENOSPC, "broken": errno.EIO}
WORDS = {
    "full": ("No space left on device", "no room on the disk", "the disk is full"),
    "broken": ("Input/output error",),
}


def preloaded() -> Any:
    """The functions of `dying.c`."""
    shim = ctypes.CDLL(None)
    for name in ("arm", "arm_once"):
        getattr(shim, name).argtypes = [ctypes.c_long, ctypes.c_int]
    shim.arm_short.argtypes = [ctypes.c_long]
    shim.called.restype = ctypes.c_long
    return shim


def arm_once(mode: str, number: int) -> None:
    """From now on call `number` fails alone, half written; or ("short") writes half and says so."""
    if mode == "short":
        preloaded().arm_short(number)
    else:
        preloaded().arm_once(number, FAILURES[mode])
