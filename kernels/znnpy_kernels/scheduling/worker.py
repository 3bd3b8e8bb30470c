"""The worker loop: runs tasks, decides when and from whom to steal, parks; and release, wait, stop from outside.

The loop knows no kernel and no network: it runs (function pointer, argument block) pairs, brings tokens to join
counters, and finds the next task: its own or the injector's (`nearby`), another worker's once there are none (`far`).
`znnpy/scheduler/README.md` has the whole protocol.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.atomics import (
    add_acq_rel,
    fence_seq_cst,
    load_acquire,
    load_relaxed,
    pause,
    store_relaxed,
    store_release,
    store_seq_cst,
    swap_acq_rel,
)
from znnpy_kernels.machine.denormals import FLUSH, float_mode, set_float_mode
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import ints, longs
from znnpy_kernels.machine.native import (
    call_kernel,
    clock_gettime,
    native,
    sched_yield,
    sem_init,
    sem_post,
    sem_timedwait,
    stack_words,
)
from znnpy_kernels.scheduling.control_block import (
    ARGUMENTS,
    AWAKE,
    BAND_BITS,
    BANDS,
    COMPLETED,
    COUNTER,
    DONE_SEMAPHORE,
    EVENT_BYTES,
    EXECUTED,
    FAILED_STEALS,
    FIRST,
    GROUP,
    GROUP_BYTES,
    GROUP_COUNT,
    GROUPS,
    JOINS,
    KERNEL,
    LAST,
    MEMBERS,
    MISSING,
    NEAR,
    NEAR_END,
    PARKS,
    PHASE_COUNT,
    PHASES,
    QUEUE_BYTES,
    QUEUES,
    RANDOM,
    RELEASING,
    RING,
    RING_ROWS,
    SEARCH_RING,
    SEARCHES,
    SEARCHING,
    SEMAPHORE,
    SLEEPERS,
    SLOTS,
    SPIN_NS,
    STATE,
    STEALS,
    STOP,
    TASK_BYTES,
    TASK_COUNT,
    TASK_SHIFT,
    TASKS,
    TOO_EARLY,
    WORKERS,
)
from znnpy_kernels.scheduling.deque import push, seems_empty, steal, take
from znnpy_kernels.scheduling.parking import nanoseconds, park, wake, wake_some

# Below every entry; `entry >= 0` tells them apart.
NONE = -1
# The band of an entry: its low bits.
BAND_MASK = (1 << BAND_BITS) - 1
# An item's low 32 bits: entries are not negative, so no sign spreads into the bits above.
ENTRY_MASK = (1 << 32) - 1
# 0 is the worker's own deque, or a task that was kept in hand: so an entry is an item as it is.
SOURCE_SHIFT = 32
"""A found item is an entry with where it came from above it: 1 another worker, 2 the injector."""
EAGER_ROUNDS = 32
"""Rounds of an idle worker that only pause; later ones give the core to others who may need it."""
REACHED, NOT_YET, FAILED = range(3)
"""What `wait` returns."""


@part
def record_of(control: int, entry: int) -> Any:
    """Return the address of the task record that an entry stands for."""
    return longs(control + TASKS)[0] + ((entry >> BAND_BITS) << TASK_SHIFT)


@part
def arrive(control: int, entry: int) -> Any:
    """Bring one token to a task; return true to the caller that brings the last."""
    record = record_of(control, entry)
    # Acquire, with the release half of the others' decrements: makes earlier predecessors' writes visible.
    missing = load_acquire(record + COUNTER)
    # If one is missing, it is ours and nobody else will touch the counter: no read-modify-write. Else
    # release our predecessor's writes to the last, and acquire, as others may have come since the
    # load. Decrements are one release sequence: the last synchronises with all of them.
    if missing > 1 and add_acq_rel(record + COUNTER, -1) != 1:
        return False
    if missing < 1:
        # Kept for `wait`, which raises: a worker has nobody whom it could tell. Of several the last one stays.
        store_relaxed(control + TOO_EARLY, (entry >> BAND_BITS) + 1)
        return False
    store_relaxed(record + COUNTER, 0)  # only so that a token too early is noticed
    return True


@part
def complete(control: int, group: int) -> None:
    """Count a task in its group; the last one re-arms the group and wakes its waiters."""
    place = longs(control + GROUPS)[0] + group * GROUP_BYTES
    if add_acq_rel(place + MISSING, -1) == 1:
        # Relaxed: members run again only after somebody has waited for this completion.
        store_relaxed(place + MISSING, longs(place + MEMBERS)[0])
        # Release, with the acquire in `wait`: publishes the members' writes. One writer: no add needed.
        store_release(place + COMPLETED, load_relaxed(place + COMPLETED) + 1)
        sem_post(place + DONE_SEMAPHORE)


@part
def more_urgent(control: int, queue: int, band: int) -> Any:
    """Return whether the own deques or the injector seem to hold a task of an earlier band."""
    injector = longs(control + QUEUES)[0] + longs(control + WORKERS)[0] * QUEUE_BYTES
    # The own deques are exact here, since we are their owner; the injector's answer is a hint, and `nearby`
    # looks again.
    earlier = 0
    while earlier < band and seems_empty(queue, earlier) and seems_empty(injector, earlier):
        earlier += 1
    return earlier < band


@part
def tell_successors(control: int, queue: int, record: int) -> Any:
    """Bring a token to every successor; return one that became ready and is to run next, or NONE.

    The newest of the most urgent band is kept back: no thief could take it before it runs, and it saves the way
    through the deque. The others are pushed, and sleepers are woken for them.
    """
    kept, pushed = NONE, 0
    place, last = longs(record + FIRST)[0], longs(record + LAST)[0]
    while place < last:
        entry = ints(place)[0]
        place += 4
        if arrive(control, entry):
            if kept == NONE:
                kept = entry
                continue
            # `<=`: of equal bands the newer one is kept, as its data is the warmest; the older goes where
            # thieves find it.
            if entry & BAND_MASK <= kept & BAND_MASK:
                entry, kept = kept, entry
            push(queue, entry & BAND_MASK, entry)
            pushed += 1
    if kept != NONE and more_urgent(control, queue, kept & BAND_MASK):
        push(queue, kept & BAND_MASK, kept)
        kept = NONE
        pushed += 1
    if pushed > 0:  # without pushes no fence either: a chain of tasks runs without one
        wake(control, min(pushed, 2))  # two at most: each thief that leaves tasks wakes one more
    return kept


@part
def note(control: int, queue: int, item: int, start: int) -> None:
    """Write an event into the worker's ring."""
    # `EXECUTED` is counted up after this: it is the number of this event.
    row = longs(queue + EXECUTED)[0] % longs(control + RING_ROWS)[0]
    event = longs(longs(queue + RING)[0] + row * EVENT_BYTES)
    event[0] = (item & ENTRY_MASK) >> BAND_BITS
    event[1] = start
    event[2] = nanoseconds()
    event[3] = item >> SOURCE_SHIFT


@part
def note_search(control: int, queue: int, start: int, slept: int, failed: int) -> None:
    """Record a time without a task; `slept`: when the worker lay down, or 0."""
    row = longs(queue + SEARCHES)[0] % longs(control + RING_ROWS)[0]
    search = longs(longs(queue + SEARCH_RING)[0] + row * EVENT_BYTES)
    search[0] = start
    search[1] = slept
    search[2] = nanoseconds()
    search[3] = failed
    longs(queue + SEARCHES)[0] += 1


@part
def execute(control: int, worker: int, queue: int, item: int) -> Any:
    """Run one task and tell its successors; return the task to run next, or NONE."""
    record = record_of(control, item & ENTRY_MASK)
    # Relaxed: the next token comes from a predecessor that runs again, which it may only after this
    # task has told its own successors, by release, below.
    store_relaxed(record + COUNTER, longs(record + JOINS)[0])
    recorded = longs(control + RING_ROWS)[0] > 0
    start = nanoseconds() if recorded else 0
    call_kernel(longs(record + KERNEL)[0], longs(record + ARGUMENTS)[0], worker)
    if recorded:
        note(control, queue, item, start)
    # Before the successors are told, so whoever has waited for the group finds this task counted and noted.
    # An ordinary store: only this worker writes its statistics. Readers that wait for a group see them by the
    # release in `complete`.
    longs(queue + EXECUTED)[0] += 1
    kept = tell_successors(control, queue, record)
    # After the successors: a group's last member ends the step, and all tokens of the step are then on their
    # way.
    if longs(record + GROUP)[0] >= 0:
        complete(control, longs(record + GROUP)[0])
    return kept


@part
def nearby(control: int, queue: int) -> Any:
    """Return the most urgent of the own deques' newest and the injector's oldest entries, or NONE."""
    injector = longs(control + QUEUES)[0] + longs(control + WORKERS)[0] * QUEUE_BYTES
    # Band by band over both places: work that was released later but is more urgent comes before the worker's
    # own of the next band.
    for band in range(BANDS):
        if not seems_empty(queue, band):
            entry = take(queue, band)
            if entry >= 0:
                return entry
        # A loop, since LOST says nothing about the rest: another worker was faster, and there may be more.
        while not seems_empty(injector, band):
            entry = steal(injector, band)
            if entry >= 0:
                return entry | (2 << SOURCE_SHIFT)
    return NONE


@part
def random_number(queue: int) -> Any:
    """Return the next of the worker's own xorshift numbers, not negative."""
    # Marsaglia's xorshift64 with shifts 13, 7, 17; never 0, since `control_block._queues` begins with no 0.
    number = longs(queue + RANDOM)[0]
    number ^= number << 13
    number ^= (number >> 7) & ((1 << 57) - 1)  # masked: int64 shifts copies of the sign in
    number ^= number << 17
    longs(queue + RANDOM)[0] = number
    # 62 bits: not negative, and a remainder by few victims is as good as even.
    return number & ((1 << 62) - 1)


@part
def far(control: int, queue: int) -> Any:
    """Steal the oldest entry of the most urgent band, or return NONE; near victims before all, from a random one on.

    A thief that leaves tasks behind wakes one sleeper more, so that wake-ups spread as a tree.
    """
    # The injector is the last victim, one more than there are workers.
    queues, victims = longs(control + QUEUES)[0], longs(control + WORKERS)[0] + 1
    number = random_number(queue)
    first, low = number % victims, longs(queue + NEAR)[0]
    near = longs(queue + NEAR_END)[0] - low
    # Bands outside, victims inside: the most urgent work of anybody comes before less urgent work of a near
    # victim.
    for band in range(BANDS):
        for turn in range(-near, victims):
            # Near ones are asked once more among all: they are seldom many, and a look at an empty deque costs little.
            index = first + turn
            if turn < 0:
                index = low + (first - turn) % near
            elif index >= victims:
                index -= victims
            victim = queues + index * QUEUE_BYTES
            if victim == queue or seems_empty(victim, band):
                continue
            entry = steal(victim, band)
            if entry >= 0:
                # From the injector it is no theft.
                longs(queue + STEALS)[0] += index != victims - 1
                # Without the fence of `wake`: this is a courtesy. If the sleeper is missed, the victim still
                # finds the task itself.
                if load_relaxed(control + SLEEPERS) > 0 and not seems_empty(victim, band):
                    wake_some(control, 1)
                return entry | ((2 if index == victims - 1 else 1) << SOURCE_SHIFT)
    longs(queue + FAILED_STEALS)[0] += 1
    return NONE


@part
def steal_for_a_while(control: int, queue: int, end: int) -> Any:
    """Steal until a task is found, the time is up or the stop flag is; at least one round."""
    # At least one round, however short SPIN_NS is: `park` only looks for what seems to be there.
    rounds = 0
    while rounds == 0 or nanoseconds() < end:
        item = far(control, queue)
        if item != NONE or load_relaxed(control + STOP) != 0:
            return item
        rounds += 1
        if rounds < EAGER_ROUNDS:
            pause()
        else:
            sched_yield()
    return NONE


@part
def search(control: int, queue: int) -> Any:
    """Find a task: nearby, then by stealing for a while; then sleep. NONE: look again."""
    item = nearby(control, queue)
    if item != NONE:
        return item
    start, slept = nanoseconds(), 0
    failed, parks = longs(queue + FAILED_STEALS)[0], longs(queue + PARKS)[0]
    # A store to a line of its own: whoever may take its core meanwhile reads it (`parking.anybody_idle`).
    store_relaxed(queue + STATE, SEARCHING)
    item = steal_for_a_while(control, queue, start + longs(control + SPIN_NS)[0])
    store_relaxed(queue + STATE, AWAKE)
    # The clock before the sleep: the search's record says when the worker lay down.
    if item == NONE and load_relaxed(control + STOP) == 0:
        slept = nanoseconds()
        park(control, queue)
    if longs(control + RING_ROWS)[0] > 0:
        # `park` may have returned at once, without sleeping: then nothing was slept.
        slept = slept if longs(queue + PARKS)[0] > parks else 0
        note_search(control, queue, start, slept, longs(queue + FAILED_STEALS)[0] - failed)
    return item


@native("void(int64,int64)")
def work(control: int, worker: int) -> None:
    """Run tasks until the stop flag is up, with denormals flushed to zero: the life of a worker."""
    # The caller's mode is put back, as this thread runs Python again after the loop.
    mode = float_mode()
    set_float_mode(mode | FLUSH)
    queue = longs(control + QUEUES)[0] + worker * QUEUE_BYTES
    item = NONE
    # Looked at between tasks, not within: a task always runs to its end.
    while load_relaxed(control + STOP) == 0:
        if item == NONE:
            item = search(control, queue)
        if item != NONE:
            item = execute(control, worker, queue, item)
    set_float_mode(mode)


@part
def bring(control: int, phase: int) -> None:
    """Bring a token to each source of the phase; from any thread."""
    injector = longs(control + QUEUES)[0] + longs(control + WORKERS)[0] * QUEUE_BYTES
    sources = longs(longs(control + PHASES)[0])
    place, last = sources[phase], sources[phase + 1]
    pushed = 0
    # The injector belongs to whoever has the lock: with one owner at a time, `push` needs no more than a worker's
    # does. Held for a few pushes, so who meets it waits a moment.
    while not swap_acq_rel(control + RELEASING, 0, 1):
        sched_yield()
    while place < last:
        entry = ints(place)[0]
        place += 4
        if arrive(control, entry):
            push(injector, entry & BAND_MASK, entry)
            pushed += 1
    sources[longs(control + PHASE_COUNT)[0] + 1 + phase] += 1
    store_release(control + RELEASING, 0)
    if pushed > 0:
        wake(control, min(pushed, 2))


@part
def wait_for(control: int, group: int, count: int, budget: int) -> Any:
    """Do what `wait` does, within another compiled function."""
    place = longs(control + GROUPS)[0] + group * GROUP_BYTES
    # CLOCK_REALTIME, which `sem_timedwait` counts by.
    until = stack_words()
    clock_gettime(0, until)
    nanos = longs(until)[1] + budget
    longs(until)[0] += nanos // 1_000_000_000
    longs(until)[1] = nanos % 1_000_000_000
    # Acquire: makes the step's writes visible to Python.
    # COMPLETED before the semaphore: a post may be of an earlier completion, or one that another waiter took.
    while load_acquire(place + COMPLETED) < count:
        if load_relaxed(control + TOO_EARLY) > 0:
            return FAILED
        # Not 0 is a timeout or a signal: Python decides which, by the time, and comes again.
        if sem_timedwait(place + DONE_SEMAPHORE, until) != 0:
            break
    return REACHED if load_acquire(place + COMPLETED) >= count else NOT_YET


@native("int64(int64,int64,int64,int64)")
def wait(control: int, group: int, count: int, budget: int) -> int:
    """Sleep until the group has completed `count` times, at most `budget` nanoseconds or a signal."""
    return int(wait_for(control, group, count, budget))


@native("int64(int64,int64)")
def completed(control: int, group: int) -> Any:
    """Return how many times the group has completed."""
    return load_acquire(longs(control + GROUPS)[0] + group * GROUP_BYTES + COMPLETED)


@native("void(int64)")
def stop(control: int) -> None:
    """Raise the stop flag and wake everybody; workers leave after the task they are in."""
    # Sequentially consistent, then a fence: as push and fence in `wake`, so `park` cannot miss it.
    store_seq_cst(control + STOP, 1)
    fence_seq_cst()  # as in `wake`: a worker that lies down sees the flag, or is seen
    wake_some(control, longs(control + WORKERS)[0])


@native("void(int64)")
def prepare(control: int) -> None:
    """Turn the offsets in a freshly filled control block into addresses; initialise the semaphores."""
    # Offsets are counted from the block's start; all that workers follow are addresses, which saves an addition
    # each time.
    for word in (TASKS, QUEUES, GROUPS, PHASES):
        longs(control + word)[0] += control
    for task in range(longs(control + TASK_COUNT)[0]):
        record = longs(control + TASKS)[0] + task * TASK_BYTES
        longs(record + FIRST)[0] += control
        longs(record + LAST)[0] += control
    for phase in range(longs(control + PHASE_COUNT)[0] + 1):
        longs(longs(control + PHASES)[0])[phase] += control
    # The injector, too.
    for index in range(longs(control + WORKERS)[0] + 1):
        queue = longs(control + QUEUES)[0] + index * QUEUE_BYTES
        longs(queue + RING)[0] += control
        longs(queue + SEARCH_RING)[0] += control
        for band in range(BANDS):
            longs(queue + SLOTS)[band] += control
        sem_init(queue + SEMAPHORE, 0, 0)
    for group in range(longs(control + GROUP_COUNT)[0]):
        place = longs(control + GROUPS)[0] + group * GROUP_BYTES
        sem_init(place + DONE_SEMAPHORE, 0, 0)
