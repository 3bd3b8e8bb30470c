"""What lies around a run of the network, done in equal parts by several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise

Part = Callable[[int, int], None]
"""Does planes first..last; must let go of the GIL to be of use."""
Parts = Callable[[Part, int], None]
"""Has a `Part` do all of so many planes."""


def whole_part(part: Part, length: int) -> None:
    """All at once, here."""
    part(0, length)


@contextmanager
def parts_of(threads: int) -> Iterator[Parts]:
    """Equal parts, one on each of so many threads of which the caller's is one."""
    if threads < 2:
        yield whole_part
        return
    with ThreadPoolExecutor(threads - 1, "znnpy-parts") as pool:

        def parts(part: Part, length: int) -> None:
            cuts = [length * number // threads for number in range(threads + 1)]
            others = [pool.submit(part, a, b) for a, b in pairwise(cuts[1:])]
            try:
                part(cuts[0], cuts[1])
            finally:
                for other in others:
                    other.result()

        yield parts
