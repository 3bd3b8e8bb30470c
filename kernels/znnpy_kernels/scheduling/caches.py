"""What tasks move from and to memory: last-level caches that keep what was touched last.

Each cache serves some workers and drops what it has not seen for longest (LRU), stripe by stripe. A stripe that a
cache lacks comes from another cache that has it, or else from memory; a store reads its lines first, takes the stripe
from all other caches, and goes to memory once its cache drops it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.native import native

LIST, FLOATS = "int64[::1]", "float64[::1]"
NOWHERE = -1
NEWER, OLDER = range(2)
"""Columns of a stripe's links within a cache."""
NEWEST, OLDEST = range(2)
"""Ends of a cache's list."""


@inlined
def unlink(links: Any, ends: Any, stripe: int) -> None:
    """Take a stripe out of a cache's list."""
    newer, older = links[stripe, NEWER], links[stripe, OLDER]
    if newer == NOWHERE:
        ends[NEWEST] = older
    else:
        links[newer, OLDER] = older
    if older == NOWHERE:
        ends[OLDEST] = newer
    else:
        links[older, NEWER] = newer


@inlined
def link(links: Any, ends: Any, stripe: int) -> None:
    """Put a stripe in front of a cache's list."""
    links[stripe, NEWER], links[stripe, OLDER] = NOWHERE, ends[NEWEST]
    if ends[NEWEST] == NOWHERE:
        ends[OLDEST] = stripe
    else:
        links[ends[NEWEST], NEWER] = stripe
    ends[NEWEST] = stripe


@native(
    f"void({LIST},{LIST},int64,{LIST},{LIST},{LIST},{FLOATS},float64,int64,{FLOATS})",
)
def count_traffic(
    order: Any,
    cache: Any,
    counted: int,
    starts: Any,
    stripes: Any,
    written: Any,
    sizes: Any,
    capacity: float,
    caches: int,
    traffic: Any,
) -> None:
    """Add to `traffic` the bytes that each task moves between the caches and memory.

    `order`: tasks as they begin, each on the cache of the same entry of `cache`; those from entry `counted` on count.
    Task t touches stripes[starts[t] : starts[t + 1]], and stores to those where `written` is not 0. `sizes`: bytes of
    the stripes. `capacity`: bytes of each of the `caches`.
    """
    links = np.full((caches, len(sizes), 2), NOWHERE)
    ends = np.full((caches, 2), NOWHERE)
    held, used = np.zeros((caches, len(sizes)), np.bool_), np.zeros(caches)
    # The task that stored to a stripe last, while memory has not seen it; and the cache that has it then.
    writer, owner = np.full(len(sizes), NOWHERE), np.full(len(sizes), NOWHERE)
    for turn in range(len(order)):
        task, own = order[turn], cache[turn]
        counts = turn >= counted
        for place in range(starts[task], starts[task + 1]):
            stripe = stripes[place]
            size = sizes[stripe]
            if held[own, stripe]:
                unlink(links[own], ends[own], stripe)
            else:
                elsewhere = False
                for other in range(caches):
                    elsewhere = elsewhere or held[other, stripe]
                if counts and not elsewhere:
                    traffic[task] += size
                held[own, stripe] = True
                used[own] += size
            link(links[own], ends[own], stripe)
            if written[place] != 0:
                for other in range(caches):
                    if other != own and held[other, stripe]:
                        unlink(links[other], ends[other], stripe)
                        held[other, stripe] = False
                        used[other] -= size
                writer[stripe], owner[stripe] = task, own
            while used[own] > capacity:
                last = ends[own, OLDEST]
                unlink(links[own], ends[own], last)
                held[own, last] = False
                used[own] -= sizes[last]
                if owner[last] == own:
                    if counts:
                        traffic[writer[last]] += sizes[last]
                    owner[last] = NOWHERE
