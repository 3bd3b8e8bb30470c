"""Exchanges of small values over any number of ranks, whose messages come in any order between two ranks."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial
from math import ceil, log2

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from shares import examples

from znnpy.distributed.gathering import Gathering


@examples(40)
@given(st.integers(2, 17), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_all_hear_all_in_order_however_late_messages_are(
    size: int, exchanges: int, seed: int
) -> None:
    """Those of one rank to another keep their order, as MPI's do; all else is drawn."""
    rng = np.random.default_rng(seed)
    lines = defaultdict[tuple[int, int], deque[bytes]](deque)
    heard = defaultdict[int, list[list[bytes]]](list)
    sent = [0] * size

    def tell(source: int, to: int, data: bytes) -> None:
        sent[source] += 1
        lines[source, to].append(data)

    ranks = [Gathering(rank, size, partial(tell, rank)) for rank in range(size)]
    begun = [0] * size
    while True:
        waiting = [rank for rank in range(size) if begun[rank] < exchanges]
        coming = [line for line, messages in lines.items() if messages]
        if not waiting and not coming:
            break
        choice = int(rng.integers(len(waiting) + len(coming)))
        if choice < len(waiting):
            rank = waiting[choice]
            value = b"%d of %d" % (rank, begun[rank]) * (rank % 3)
            begun[rank] += 1
            ranks[rank].begin(value, heard[rank].append)
        else:
            source, to = coming[choice - len(waiting)]
            ranks[to].hear(source, lines[source, to].popleft())
    expected = [
        [b"%d of %d" % (rank, number) * (rank % 3) for rank in range(size)]
        for number in range(exchanges)
    ]
    assert [heard[rank] for rank in range(size)] == [expected] * size
    assert sent == [exchanges * ceil(log2(size))] * size
