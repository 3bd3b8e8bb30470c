"""The Chase-Lev work-stealing deque in a fixed array: the owner pushes and takes at the bottom, thieves at the top.

Source: Chase and Lev, *Dynamic circular work-stealing deque* (SPAA 2005); orderings after Le, Pop, Cohen and Zappa
Nardelli, *Correct and efficient work-stealing for weak memory models* (PPoPP 2013), with ordered accesses in place
of fences. The array holds every task of its band, so it never grows and a slot is never overwritten while its entry
can still be taken. `top` and `bottom` only count up (64 bits), so a stale compare-and-swap always fails.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.atomics import (
    load_acquire,
    load_relaxed,
    load_relaxed_32,
    load_seq_cst,
    store_relaxed,
    store_relaxed_32,
    store_release,
    store_seq_cst,
    swap_seq_cst,
)
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.machine.native import native
from znnpy_kernels.scheduling.control_block import BOTTOM, MASKS, SLOTS, TOP

# Negative, so that `entry >= 0` tells an entry from both.
EMPTY = -1
LOST = -2
"""Another thief, or the owner, was faster; the deque may hold more."""


@part
def slot(queue: int, band: int, index: int) -> Any:
    """Return the address of the entry with this index; indices count up for ever and wrap around the array."""
    return longs(queue + SLOTS)[band] + 4 * (index & longs(queue + MASKS)[band])


@part
def push(queue: int, band: int, entry: int) -> None:
    """Add an entry at the bottom. Owner only."""
    bottom = load_relaxed(queue + BOTTOM + 8 * band)  # nobody else writes it
    # Atomic, since a slow thief may read the slot meanwhile: its swap of `top` then fails.
    store_relaxed_32(slot(queue, band, bottom), entry)
    # Release: a thief that sees the new bottom sees the slot, and what the task's predecessors wrote.
    store_release(queue + BOTTOM + 8 * band, bottom + 1)


@part
def take(queue: int, band: int) -> Any:
    """Remove the newest entry, or return EMPTY. Owner only."""
    bottom = load_relaxed(queue + BOTTOM + 8 * band) - 1
    # Both sequentially consistent: were the load done before the store, owner and thief could miss
    # each other and take the same entry.
    store_seq_cst(queue + BOTTOM + 8 * band, bottom)
    top = load_seq_cst(queue + TOP + 8 * band)
    if top < bottom:
        # Ours without a swap. A thief that steals this very entry has read top == bottom from some
        # swap, and after that a bottom above our store: so that swap comes before our load, which
        # would have seen it.
        return load_relaxed_32(slot(queue, band, bottom))
    entry = EMPTY
    if top == bottom and swap_seq_cst(queue + TOP + 8 * band, top, top + 1):  # the last: one wins
        entry = load_relaxed_32(slot(queue, band, bottom))
    # Relaxed: top has come as far, so nothing can be taken through it; the next push releases.
    store_relaxed(queue + BOTTOM + 8 * band, bottom + 1)
    return entry


@part
def steal(queue: int, band: int) -> Any:
    """Remove the oldest entry, or return EMPTY or LOST. Any thread."""
    # Acquire: the swap that we read comes before our look at bottom, as the proof in `take` needs.
    top = load_acquire(queue + TOP + 8 * band)
    # Acquires what the push released, and has its place in one order with `take`'s store and load.
    bottom = load_seq_cst(queue + BOTTOM + 8 * band)
    if top >= bottom:
        return EMPTY
    # Before the swap: once `top` has moved, the owner may overwrite the slot with its next round of entries.
    entry = load_relaxed_32(slot(queue, band, top))  # worth something only if the swap succeeds
    if swap_seq_cst(queue + TOP + 8 * band, top, top + 1):
        return entry
    return LOST


@part
def seems_empty(queue: int, band: int) -> Any:
    """Return whether a deque seems empty, without ordering: exact for the owner, a hint for all others."""
    # Only the owner adds and top only grows, so a deque that is empty for its owner stays so.
    return load_relaxed(queue + TOP + 8 * band) >= load_relaxed(queue + BOTTOM + 8 * band)


@native("void(int64,int64,int64)")
def push_once(queue: int, band: int, entry: int) -> None:
    """Call `push` from Python, for tests and measurements."""
    push(queue, band, entry)


@native("int64(int64,int64)")
def take_once(queue: int, band: int) -> Any:
    """Call `take` from Python, for tests and measurements."""
    return take(queue, band)


@native("int64(int64,int64)")
def steal_once(queue: int, band: int) -> Any:
    """Call `steal` from Python, for tests and measurements."""
    return steal(queue, band)
