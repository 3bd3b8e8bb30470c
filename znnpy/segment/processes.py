"""Does one thing to many items, by threads here or by the workers of a dask scheduler."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from znnpy.errors import ZnnpyError

# As of predictions: one computes while the next waits, and errors may be one machine's.
AHEAD = 2  # items that each thread of a worker is given before it asks
RETRIES = 3  # times that an item is tried again elsewhere
Item = TypeVar("Item")
Result = TypeVar("Result")


def each(
    items: Iterable[Item],
    work: Callable[[Item], Result],
    done: Callable[[Item, Result], None],
    client: Any = None,
    threads: int | None = None,
) -> None:
    """Call `done` with each item and what `work` makes of it: in order, or, with a client, as its workers end.

    Without a client so many threads work (None: the caller's), and the caller's calls `done`. With one, `work` can be
    pickled, and may be called twice for an item whose worker is lost. Raises what `work` raises, and ZnnpyError where
    workers die of an item.
    """
    if client is not None:
        _by_workers(items, work, done, client)
    elif threads is not None and threads > 1:
        _by_threads(items, work, done, threads)
    else:
        for item in items:
            done(item, work(item))


def _by_threads(
    items: Iterable[Item],
    work: Callable[[Item], Result],
    done: Callable[[Item, Result], None],
    threads: int,
) -> None:
    with ThreadPoolExecutor(threads, "znnpy-segment") as pool:
        running: deque[tuple[Item, Any]] = deque()
        try:
            for item in items:
                running.append((item, pool.submit(work, item)))
                if len(running) >= AHEAD * threads:
                    first, result = running.popleft()
                    done(first, result.result())
            for item, result in running:
                done(item, result.result())
        except BaseException:
            # Those that run are waited for, the others are not begun.
            pool.shutdown(cancel_futures=True)
            raise


def _by_workers(
    items: Iterable[Item],
    work: Callable[[Item], Result],
    done: Callable[[Item, Result], None],
    client: Any,
) -> None:
    from distributed import CancelledError, as_completed
    from distributed.scheduler import KilledWorker

    waiting, given = iter(items), dict[str, Item]()

    def more(count: int) -> list[Any]:
        made = []
        for item in itertools.islice(waiting, count):
            # Not pure: dask must not take the result of an earlier job for this one.
            future = client.submit(work, item, pure=False, retries=RETRIES)
            given[future.key] = item
            made.append(future)
        return made

    running = as_completed(more(AHEAD * max(1, sum(client.nthreads().values()))))
    for future in running:
        item = given.pop(future.key)
        try:
            result = future.result()
        except (KilledWorker, CancelledError) as error:
            raise ZnnpyError(
                f"the part at {item} cannot be computed: its dask workers died, killed or for want of memory. What is "
                "finished is kept, the same command goes on"
            ) from error
        done(item, result)
        for new in more(1):
            running.add(new)
