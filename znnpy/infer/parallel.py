"""Divides work around a network run (normalising, copying) into equal parts for several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise

Part = Callable[[int, int], None]
"""Processes planes first..last; must release the GIL to be of use."""
Parts = Callable[[Part, int], None]
"""Has a `Part` process all of so many planes."""


def whole_part(part: Part, length: int) -> None:
    """Process all planes at once, in this thread."""
    part(0, length)


@contextmanager
def parts_of(threads: int) -> Iterator[Parts]:
    """Yield a `Parts` that divides work equally among so many threads, of which the caller's is one."""
    if threads < 2:
        yield whole_part
        return
    with ThreadPoolExecutor(threads - 1, "znnpy-parts") as pool:

        def parts(part: Part, length: int) -> None:
            cuts = [length * number // threads for number in range(threads + 1)]
            others = [pool.submit(part, a, b) for a, b in pairwise(cuts[1:])]
            try:
                part(cuts[0], cuts[1])
            # Waited for even if this thread's part fails: others may still write into the caller's
            # arrays.
            finally:
                for other in others:
                    other.result()

        yield parts
