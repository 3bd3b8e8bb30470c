"""Lines of memory that a loop of products asks for with each turn: one to read, maybe one to write; without a branch.

As many memory accesses as a core has under way at once are few, and a branch that is taken seldom costs as much as
fifteen products: so requests are spread evenly over all turns of all loops (`row_requests`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

from znnpy_kernels.simd.codegen import Value, prefetch


class AskedLines(NamedTuple):
    """Addresses to read, or to read and to write, for the first turn, and bytes from turn to turn; or none."""

    starts: list[Value]
    steps: list[Value]

    @classmethod
    def of(cls, b: ir.IRBuilder, kind: Any, given: Value) -> AskedLines:
        """Return what an argument says: None, or a tuple of one or two addresses, read and written, and their steps."""
        if isinstance(kind, types.NoneType):
            return cls([], [])
        words = cgutils.unpack_tuple(b, given, kind.count)
        return cls(words[: kind.count // 2], words[kind.count // 2 :])

    def ask(self, b: ir.IRBuilder, carried: list[Value]) -> tuple[list[Value], list[Value]]:
        """Emit a turn's requests; return the addresses of the next turn, and what else the loop carries."""
        places, others = carried[: len(self.starts)], carried[len(self.starts) :]
        # To write: into the L1 cache, as x86 has no other such request. What is read alone are filters, soon.
        for place, write in zip(places, (False, True), strict=False):
            prefetch(b, place, write=write, level=1 if write or len(places) == 1 else 2)
        return [b.add(*pair) for pair in zip(places, self.steps, strict=True)], others
