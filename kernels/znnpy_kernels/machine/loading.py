"""Compile functions of the package, or load them from numba's cache without what only its compiler needs.

Before it loads the first function, numba imports and registers all that it can compile, which takes
0.3 to 0.5 s, longer than to load all kernels of a network. Machine code needs none of that, only the
addresses of numba's runtime. A function that must be compiled has it done by the compiler itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba import njit
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.runtime import rtsys

KNOWN = ("0.68",)
"""Versions of numba whose functions load so; where others keep their symbols is not known."""


class _QuickCache(FunctionCache):
    """numba's cache of one function, but for the refresh of all contexts."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if numba.__version__.rpartition(".")[0] not in KNOWN:
            return super().load_overload(sig, target_context)
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def callback(function: Callable[..., Any], signature: Any) -> Any:
    """`numba.cfunc` with this cache."""
    made: Any = CFunc(function, (signature.args, signature.return_type), {}, {"nopython": True})
    made._cache = _QuickCache(function)
    made.compile()
    return made


def dispatcher(function: Callable[..., Any], signature: str) -> Any:
    """`numba.njit` of one signature, without the GIL, with this cache."""
    made = njit(nogil=True, error_model="numpy")(function)
    made._cache = _QuickCache(function)
    made.compile(signature)
    made.disable_compile()
    return made
