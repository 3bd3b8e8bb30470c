"""`meanwhile`: work that needs no Python runs beside what does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[None]:
    """Run `work` on a thread of its own beside the block, and wait for it; what it raises is raised at the end.

    Worth it for work that holds the interpreter seldom: each time it takes it back it may wait for 5 ms.
    """
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        yield
        done.result()
