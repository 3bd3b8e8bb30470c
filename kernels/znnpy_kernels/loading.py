"""Load compiled functions from numba's cache without what only its compiler needs.

Before it loads the first function, numba imports and registers all that it can compile, which takes
0.3 to 0.5 s, longer than to load all kernels of a network. Machine code needs none of that, only the
addresses of numba's runtime. A function that must be compiled has it done by the compiler itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
from numba.core import caching
from numba.core.runtime import rtsys

KNOWN = ("0.68",)
"""Versions of numba whose functions load so; where others keep their symbols is not known."""

_usual = caching.Cache.load_overload


@contextmanager
def quick_loading() -> Iterator[None]:
    """While it lasts, cached functions are loaded so; not for several threads at once."""
    if numba.__version__.rpartition(".")[0] not in KNOWN:
        yield
        return
    caching.Cache.load_overload = _load
    try:
        yield
    finally:
        caching.Cache.load_overload = _usual


def _load(self: Any, sig: Any, target_context: Any) -> Any:
    """`Cache.load_overload` but for the refresh of all contexts."""
    rtsys.initialize(target_context)
    with self._guard_against_spurious_io_errors():
        return self._load_overload(sig, target_context)
