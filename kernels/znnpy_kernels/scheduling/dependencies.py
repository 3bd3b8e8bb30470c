"""Finds which earlier tasks each task must wait for, and what it reads unwritten, from the ranges that tasks touch.

Ranges of one key (a section of a buffer) are kept in a linked list for each way of touching it. A write takes what
it covers out of the lists, since whoever comes after the write need not look at that any more: lists stay short.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.native import native
from znnpy_kernels.scheduling.serial import heap_pop, heap_push

KEY, LOW, HIGH, STRAND, KIND = range(5)
"""Columns of the table of accesses, which has those of each task one after the other."""
READ, WRITE, BETWEEN, FORGET = range(4)
"""Kinds of access: between: nothing is touched, but earlier and later uses are kept apart; forget: the content ends."""
NEXT, MOMENT = KEY, KIND
"""Columns of an entry of a list that stand in place of the access's: the entry behind it, and when it was declared."""
ENTRY = 5
NONE = -1
DONE, ENTRIES, KEPT = range(3)
"""Words of the state: moments whose predecessors are found, entries in use, and predecessors not yet written out."""
STATE_WORDS = 3
IN_STEP, EVER, UNCHECKED = range(3)
"""Who must have written what is read of a key: an earlier task of the step, any task, or nobody."""
WORD = 64
LIST, TABLE = "int64[::1]", "int64[:,::1]"


@part
def _put(
    lists: Any, heads: Any, key: int, which: int, access: Any, moment: int, entry: int
) -> None:
    """Put an access at the head of a list."""
    lists[entry, NEXT] = heads[key, which]
    lists[entry, LOW] = access[LOW]
    lists[entry, HIGH] = access[HIGH]
    lists[entry, STRAND] = access[STRAND]
    lists[entry, MOMENT] = moment
    heads[key, which] = entry


@part
def _unlink(lists: Any, heads: Any, key: int, which: int, last: int, entry: int) -> None:
    """Take an entry out of a list; `last`: the entry before it."""
    if last == NONE:
        heads[key, which] = lists[entry, NEXT]
    else:
        lists[last, NEXT] = lists[entry, NEXT]


@part
def _meet(
    lists: Any,
    heads: Any,
    which: int,
    access: Any,
    covers: bool,
    heap: Any,
    seen: Any,
    size: int,
    moment: int,
) -> Any:
    """Add the moments of what an access meets in a list to the heap, each once; return the heap's new size.

    `covers`: entries that lie wholly in the access leave the list. Strands of two numbers never overlap.
    """
    key, strand, last, count = access[KEY], access[STRAND], NONE, size
    entry = heads[key, which]
    while entry != NONE:
        of, other = lists[entry], lists[entry, MOMENT]
        meets = of[LOW] < access[HIGH] and access[LOW] < of[HIGH]
        meets = meets and (strand < 0 or of[STRAND] < 0 or strand == of[STRAND])
        if meets and seen[other] != moment:
            seen[other] = moment
            heap_push(heap, count, -other)  # the latest is taken out first
            count += 1
        inside = of[LOW] >= access[LOW] and of[HIGH] <= access[HIGH]
        # Whoever touches it later waits for this write, and by it for all that the write covers. A write of one strand
        # covers only accesses of that strand.
        if covers and inside and (strand < 0 or of[STRAND] == strand):
            _unlink(lists, heads, key, which, last, entry)
        else:
            last = entry
        entry = of[NEXT]
    return count


@part
def _collect(
    accesses: Any,
    first: int,
    end: int,
    heads: Any,
    lists: Any,
    heap: Any,
    seen: Any,
    moment: int,
    state: Any,
) -> Any:
    """Note the accesses of a task; return how many earlier tasks they meet, whose moments are then in the heap."""
    size = np.int64(
        0
    )  # typed: a helper that is given a plain number is compiled for that number, too
    for number in range(first, end):
        access = accesses[number]
        kind = access[KIND]
        if kind == FORGET:
            continue
        seen[moment] = moment  # a task does not wait for itself
        writes = kind != READ
        for which in range(READ if writes else WRITE, WRITE + 1):
            size = _meet(lists, heads, which, access, writes, heap, seen, size, moment)
        _put(lists, heads, access[KEY], WRITE if writes else READ, access, moment, state[ENTRIES])
        state[ENTRIES] += 1
    return size


@part
def _reduce(heap: Any, size: int, reached: Any, moment: int, kept: Any) -> Any:
    """Keep the moments of the heap that no later one of them reaches, the latest first; return how many.

    Row m % rows of `reached` has a bit for each moment that task m reaches, in words from `_first_word` on; its
    length bounds how far back tasks look. What lies further back is kept: an edge too many is right, too.
    """
    rows, words = reached.shape
    own, first, count = moment % rows, max(0, moment // WORD - words + 1), 0
    for word in range(moment // WORD - first + 1):
        reached[own, word] = 0
    # Latest first is what makes one pass enough: whatever reaches an earlier candidate is a later task, so it has been
    # looked at, and its row merged, before.
    while size > 0:
        before = -heap_pop(heap, size)
        size -= 1
        place = before // WORD - first
        if place >= 0 and reached[own, place] >> (before % WORD) & 1:
            continue
        kept[count] = before
        count += 1
        if place < 0:
            continue
        other, its = before % rows, max(0, before // WORD - words + 1)
        # A row ends with the word of its own task, since no task reaches a later one; `its` is never above `first`.
        for word in range(first, before // WORD + 1):
            reached[own, word - first] |= reached[other, word - its]
        reached[own, place] |= 1 << (before % WORD)
    return count


@native(f"int64({TABLE},{LIST},{LIST},{TABLE},{TABLE},{TABLE},{TABLE},{LIST},{LIST},{LIST})")
def find_predecessors(
    accesses: Any,
    starts: Any,
    order: Any,
    heads: Any,
    lists: Any,
    reached: Any,
    room: Any,
    ends: Any,
    found: Any,
    state: Any,
) -> int:
    """Find the predecessors of tasks in the order of declaration; return 0 if `found` has no room for the next one's.

    accesses: those of task t are the rows starts[t] .. starts[t + 1]. order: the task of each moment. heads:
    (keys, 2), NONE at first. lists: an entry for each access of all moments. reached: (rows, rows // WORD). room: 3
    rows, a number a moment. found[ends[m] : ends[m + 1]]: the predecessors of moment m, the latest first. state:
    0, 0, NONE at first. After a return of 0 call again with a longer `found` of the same content.
    """
    heap, kept, seen = room[0], room[1], room[2]
    for moment in range(state[DONE], len(order)):
        if state[KEPT] == NONE:
            task = order[moment]
            first, end = starts[task], starts[task + 1]
            size = _collect(accesses, first, end, heads, lists, heap, seen, moment, state)
            state[KEPT] = _reduce(heap, size, reached, moment, kept)
        begin, count = ends[moment], state[KEPT]
        if begin + count > len(found):
            return 0
        # Not by slices, for whose errors numba would compile half of its strings.
        for number in range(count):
            found[begin + number] = kept[number]
        ends[moment + 1] = begin + count
        state[KEPT] = NONE
        state[DONE] = moment + 1
    return 1


@part
def _add_written(lists: Any, heads: Any, which: int, access: Any, entry: int) -> Any:
    """Note a range as written, merged with those that it touches; return whether the entry was used."""
    key, last = (
        access[KEY],
        NONE,
    )  # merged, so that a read over their border is found in one of them
    low, high = access[LOW], access[HIGH]
    other = heads[key, which]
    while other != NONE:
        its_low, its_high = lists[other, LOW], lists[other, HIGH]
        if its_low <= low and high <= its_high:
            return False
        if its_high < low or high < its_low:
            last = other
        else:
            low, high = min(low, its_low), max(high, its_high)
            _unlink(lists, heads, key, which, last, other)
        other = lists[other, NEXT]
    _put(lists, heads, key, which, access, 0, entry)
    lists[entry, LOW], lists[entry, HIGH] = low, high
    return True


@part
def _is_written(lists: Any, heads: Any, which: int, access: Any, whole: int) -> Any:
    """Return whether all of a range was written, or it is empty; an open end means up to the last that was."""
    if access[LOW] >= access[HIGH]:  # of passes that see nothing but padding
        return True
    entry = heads[access[KEY], which]
    if access[HIGH] >= whole:
        return entry != NONE and lists[entry, NEXT] == NONE and lists[entry, LOW] <= access[LOW]
    while entry != NONE:
        if lists[entry, LOW] <= access[LOW] and access[HIGH] <= lists[entry, HIGH]:
            return True
        entry = lists[entry, NEXT]
    return False


@native(f"int64({TABLE},{LIST},{LIST},{TABLE},{TABLE},int64)")
def find_unwritten(accesses: Any, bounds: Any, who: Any, heads: Any, lists: Any, whole: int) -> int:
    """Return the number of the first access that reads what was not written, or NONE.

    bounds: the first access of each step, and the end. who: by key, who must have written it: IN_STEP, EVER (where
    there are several steps), UNCHECKED. heads: (keys, 2), NONE at first. lists: an entry for each access. whole: the
    bound of open ends.
    """
    used, last = 0, len(bounds) - 1
    for step in range(last):
        for key in range(len(heads)):
            heads[key, IN_STEP] = NONE  # what one step fills, the next must fill again
        for number in range(bounds[step], bounds[step + 1]):
            access = accesses[number]
            by, kind = who[access[KEY]], access[KIND]
            if kind == FORGET:
                heads[access[KEY], IN_STEP] = NONE
            elif kind == WRITE and by != UNCHECKED:
                used += _add_written(lists, heads, by, access, used)
            elif (
                kind == READ and by == IN_STEP and not _is_written(lists, heads, by, access, whole)
            ):
                return number
    # A single step finds what other graphs, or Python, have written.
    for number in range(bounds[last] if last > 1 else 0):
        access = accesses[number]
        waits = access[KIND] == READ and who[access[KEY]] == EVER
        if waits and not _is_written(lists, heads, EVER, access, whole):
            return number
    return NONE
