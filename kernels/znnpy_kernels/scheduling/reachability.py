"""Transitive reduction while a graph is declared: which earlier tasks a task reaches, as rows of bits."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.native import native

# Bits of a word of a row.
WORD = 64
# A contiguous array, whose index needs no stride.
LIST = "int64[::1]"


@native(f"int64(uint64[::1],{LIST},int64,{LIST},int64)")
def keep_unreached(bits: Any, starts: Any, moment: int, candidates: Any, count: int) -> int:
    """Reduce a task's predecessors to those that no other of them reaches, and write its row of bits.

    bits: rows one after the other, row m begins at word starts[m], has m // 64 + 1 words and one bit for each
    earlier task. candidates: the first `count` are predecessors of task `moment`, the latest first; the kept ones
    are moved to the front, in that order. Returns how many were kept.
    """
    # Latest first is what makes one pass enough: whatever reaches an earlier candidate is a later task, so it
    # has been looked at, and its row merged, before.
    row = starts[moment]
    kept = 0
    for index in range(count):
        before = candidates[index]
        # An earlier candidate whose bit is set is reached by one that was kept.
        if bits[row + before // WORD] >> (before % WORD) & 1:
            continue
        candidates[kept] = before
        kept += 1
        other = starts[before]
        # A row ends with the word of its own task, since no task reaches a later one.
        for word in range(before // WORD + 1):
            bits[row + word] |= bits[other + word]
        bits[row + before // WORD] |= 1 << (before % WORD)
    return kept
