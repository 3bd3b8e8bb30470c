"""Reads the next block and writes the last one while the network computes; one of each at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Block = TypeVar("Block")
Read = TypeVar("Read")
Made = TypeVar("Made")


def overlapped(
    blocks: Sequence[Block],
    read: Callable[[Block], Read],
    compute: Callable[[Block, Read], Made],
    write: Callable[[Block, Made], None],
) -> Iterator[Block]:
    """Run `compute` here and `read`, `write` in a thread each; yields blocks once they are written.

    At most two blocks are read and not computed, at most two computed and not written. The first
    error of any of the three is raised here, after what is being written has ended.
    """
    with (
        ThreadPoolExecutor(1, "znnpy-read") as reader,
        ThreadPoolExecutor(1, "znnpy-write") as writer,
    ):
        coming: Future[Read] | None = reader.submit(read, blocks[0]) if blocks else None
        going: tuple[Block, Future[None]] | None = None
        for index, block in enumerate(blocks):
            assert coming is not None
            given = coming.result()
            more = index + 1 < len(blocks)
            coming = reader.submit(read, blocks[index + 1]) if more else None
            made = compute(block, given)
            del given
            if going is not None:
                going[1].result()
                yield going[0]
            going = (block, writer.submit(write, block, made))
            del made
        if going is not None:
            going[1].result()
            yield going[0]
