"""The scheduler's protocol as a discrete-event loop: any number of workers, on one thread.

It follows `worker.py` where that decides who runs what and when: the kept successor, deques by band,
the injector, thieves from a random victim on, parking and wake-ups. Time is not measured but added
up: the tasks' own, and so much for each dispatch, steal and wake-up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.native import native
from znnpy_kernels.scheduling.shared_state import BANDS

COUNTER, JOINS, BAND, STEP, PHASE, RUNS = range(6)
"""Columns of `tasks`; RUNS counts how often a task has started."""
DOING, RANDOM = range(2)
"""Columns of `hands`: the task that a worker runs (or NONE, WAKING), its xorshift number."""
REMAINING, SHARE, IDLE_SINCE = range(3)
"""Columns of `clock`: seconds left of what a worker does, their memory-bound share, idle since."""
DISPATCH, SUCCESSOR, STEAL, WAKE, SPIN, SUBMIT, BANDWIDTH, CALLER = range(8)
"""Words of `rates`: seconds, and how many cores' worth of memory traffic the machine carries."""
NOW, OVERHEAD, STEALS, WAKE_UPS, RAN, MISSING = range(6)
"""Words of `totals`; MISSING is the first of one word a copy, runs still to come of its step."""
NONE, WAKING = -1, -2
FOREVER = 1e300
TABLE = "int64[:,::1]"
LIST = "int64[::1]"
FLOATS = "float64[:,::1]"
SECONDS = "float64[::1]"


class World(NamedTuple):
    """Everything that changes or is looked up while time passes.

    Successors of task t: successors[starts[t] : starts[t + 1]]. `costs[r, t]`: seconds of run r of
    task t, the rows in turn. `links`: the entry below and above each task in its deque. `ends`:
    oldest and newest entry of each queue and band; the last queue is the injector's. `queued`:
    entries of each band in all queues. `log`: task, worker and start of each run, as many as it has
    rows.
    """

    tasks: Any
    starts: Any
    successors: Any
    costs: Any
    shares: Any
    links: Any
    ends: Any
    queued: Any
    hands: Any
    clock: Any
    rates: Any
    totals: Any
    log: Any


@inlined
def push(world: World, queue: int, task: int) -> None:
    """Add an entry as the newest of its band."""
    row = queue * BANDS + world.tasks[task, BAND]
    newest = world.ends[row, 1]
    world.links[task, 0], world.links[task, 1] = newest, NONE
    if newest == NONE:
        world.ends[row, 0] = task
    else:
        world.links[newest, 1] = task
    world.ends[row, 1] = task
    world.queued[world.tasks[task, BAND]] += 1


@inlined
def remove(world: World, queue: int, band: int, side: int) -> Any:
    """Remove the oldest (side 0, as a thief) or newest (side 1, as the owner) entry, or NONE."""
    row = queue * BANDS + band
    task = world.ends[row, side]
    if task != NONE:
        world.queued[band] -= 1
        following = world.links[task, 1 - side]
        world.ends[row, side] = following
        if following == NONE:
            world.ends[row, 1 - side] = NONE
        else:
            world.links[following, side] = NONE
    return task


@inlined
def more_urgent(world: World, queue: int, band: int) -> Any:
    """Whether the own deques or the injector hold something of an earlier band."""
    injector = len(world.hands)
    for earlier in range(band):
        own = world.ends[queue * BANDS + earlier, 0]
        if own != NONE or world.ends[injector * BANDS + earlier, 0] != NONE:
            return True
    return False


@inlined
def nearby(world: World, worker: int) -> Any:
    """(task, whether it came from the injector): the own newest or the injector's oldest."""
    for band in range(BANDS):
        if world.queued[band] == 0:
            continue
        task = remove(world, worker, band, 1)
        if task != NONE:
            return task, False
        task = remove(world, len(world.hands), band, 0)
        if task != NONE:
            return task, True
    return NONE, False


@inlined
def random_number(world: World, worker: int) -> Any:
    """The next of the worker's own xorshift numbers, not negative."""
    number = world.hands[worker, RANDOM]
    number ^= number << 13
    number ^= (number >> 7) & ((1 << 57) - 1)
    number ^= number << 17
    world.hands[worker, RANDOM] = number
    return number & ((1 << 62) - 1)


@inlined
def far(world: World, worker: int) -> Any:
    """(task, whether its deque holds more): the oldest of the most urgent band of any victim."""
    victims = len(world.hands) + 1
    first = random_number(world, worker) % victims
    for band in range(BANDS):
        if world.queued[band] == 0:
            continue
        for turn in range(first, first + victims):
            victim = turn - victims if turn >= victims else turn
            if victim == worker:
                continue
            task = remove(world, victim, band, 0)
            if task != NONE:
                return task, world.ends[victim * BANDS + band, 0] != NONE
    return NONE, False


@inlined
def start(world: World, worker: int, task: int, extra: float) -> None:
    """Give a worker a task: its own seconds, dispatch, and what finding it took."""
    tasks, clock, rates, totals = world.tasks, world.clock, world.rates, world.totals
    own = world.costs[tasks[task, RUNS] % len(world.costs), task]
    told = world.starts[task + 1] - world.starts[task]
    extra += rates[DISPATCH] + rates[SUCCESSOR] * told
    tasks[task, COUNTER] = tasks[task, JOINS]
    tasks[task, RUNS] += 1
    world.hands[worker, DOING] = task
    clock[worker, REMAINING] = own + extra
    clock[worker, SHARE] = world.shares[task] * own / (own + extra) if own > 0 else 0.0
    row = int(totals[RAN])
    if row < len(world.log):
        world.log[row, 0], world.log[row, 1], world.log[row, 2] = task, worker, totals[NOW]
    totals[OVERHEAD] += extra
    totals[RAN] += 1


@inlined
def spins(world: World, worker: int) -> Any:
    """Whether an idle worker still looks for work, and is not parked yet."""
    return world.totals[NOW] - world.clock[worker, IDLE_SINCE] <= world.rates[SPIN]


@inlined
def wake(world: World, count: int) -> None:
    """Claim up to `count` parked workers; they look for work after the time of a wake-up."""
    for worker in range(len(world.hands)):
        if count == 0:
            return
        if world.hands[worker, DOING] == NONE and not spins(world, worker):
            world.hands[worker, DOING] = WAKING
            world.clock[worker, REMAINING], world.clock[worker, SHARE] = world.rates[WAKE], 0.0
            world.totals[WAKE_UPS] += 1
            count -= 1


@inlined
def look(world: World, worker: int) -> Any:
    """An idle worker looks for a task everywhere; whether it found one."""
    task, stolen = nearby(world, worker)
    more = False
    if task == NONE:
        task, more = far(world, worker)
        stolen = True
    if task == NONE:
        return False
    world.totals[STEALS] += 1 if stolen else 0
    start(world, worker, task, world.rates[STEAL] if stolen else 0.0)
    if more:
        wake(world, 1)
    return True


@inlined
def look_all(world: World, first: int) -> None:
    """Every worker that is idle and not yet parked looks for a task, from `first` on in turn."""
    for turn in range(first, first + len(world.hands)):
        worker = turn % len(world.hands)
        idle = world.hands[worker, DOING] == NONE and spins(world, worker)
        if idle and not look(world, worker):
            return


@inlined
def arrive(world: World, task: int) -> Any:
    """Bring one token to a task; true for the last."""
    world.tasks[task, COUNTER] -= 1
    return world.tasks[task, COUNTER] == 0


@inlined
def tell(world: World, worker: int, task: int) -> Any:
    """Bring a token to every successor; returns the one to run next, or NONE."""
    tasks = world.tasks
    kept, pushed = NONE, 0
    for place in range(world.starts[task], world.starts[task + 1]):
        other = world.successors[place]
        if arrive(world, other):
            if kept == NONE:
                kept = other
                continue
            if tasks[other, BAND] <= tasks[kept, BAND]:
                other, kept = kept, other
            push(world, worker, other)
            pushed += 1
    if kept != NONE and more_urgent(world, worker, tasks[kept, BAND]):
        push(world, worker, kept)
        kept = NONE
        pushed += 1
    if pushed > 0:
        wake(world, min(pushed, 2))
    return kept


@inlined
def release(world: World, phase: int) -> None:
    """Bring a token to each source of a phase."""
    pushed = 0
    for task in range(len(world.tasks)):
        if world.tasks[task, PHASE] == phase and arrive(world, task):
            push(world, len(world.hands), task)
            pushed += 1
    if pushed > 0:
        wake(world, min(pushed, 2))


@inlined
def take_core(world: World) -> None:
    """The caller, who prepares a step, has a worker's core meanwhile: an idle one's if there is one."""
    unlucky = random_number(world, 0) % len(world.hands)
    for worker in range(len(world.hands)):
        if world.hands[worker, DOING] == NONE:
            unlucky = worker
    if world.hands[unlucky, DOING] == NONE:
        world.hands[unlucky, DOING] = WAKING
        world.clock[unlucky, REMAINING], world.clock[unlucky, SHARE] = 0.0, 0.0
    world.clock[unlucky, REMAINING] += world.rates[CALLER]


@inlined
def in_tasks(world: World) -> Any:
    """How many workers run a task."""
    busy = 0
    for worker in range(len(world.hands)):
        busy += world.hands[worker, DOING] >= 0
    return busy


@inlined
def slower(world: World, worker: int, busy: int) -> Any:
    """How many times as long as alone a worker's task takes when so many run."""
    return 1 + world.clock[worker, SHARE] * max(0, busy - 1) / world.rates[BANDWIDTH]


@inlined
def advance(world: World, until: float) -> Any:
    """Let time pass to the next end of a task, or to `until`; returns the worker, or NONE."""
    hands, clock, now = world.hands, world.clock, world.totals[NOW]
    busy = in_tasks(world)
    first, soonest = NONE, until - now
    for worker in range(len(hands)):
        if hands[worker, DOING] != NONE:
            left = clock[worker, REMAINING] * slower(world, worker, busy)
            if left < soonest or (left == soonest and first == NONE):
                first, soonest = worker, left
    for worker in range(len(hands)):
        passed = soonest / slower(world, worker, busy)
        clock[worker, REMAINING] = max(0.0, clock[worker, REMAINING] - passed)
    world.totals[NOW] = until if first == NONE else now + soonest
    return first


@inlined
def finish(world: World, worker: int) -> Any:
    """End what a worker does and let it go on; returns the task, or WAKING."""
    task, kept = world.hands[worker, DOING], NONE
    world.hands[worker, DOING] = NONE
    world.clock[worker, IDLE_SINCE] = world.totals[NOW]
    if task >= 0:
        kept = tell(world, worker, task)
    if kept != NONE:
        start(world, worker, kept, 0.0)
    look_all(world, worker)
    return task


@native(
    f"int64({TABLE},{LIST},{LIST},{FLOATS},{SECONDS},{TABLE},{TABLE},{LIST},{TABLE},{FLOATS},"
    f"{SECONDS},{SECONDS},{FLOATS},{LIST},{SECONDS})"
)
def simulate(
    tasks: Any,
    starts: Any,
    successors: Any,
    costs: Any,
    shares: Any,
    links: Any,
    ends: Any,
    queued: Any,
    hands: Any,
    clock: Any,
    rates: Any,
    totals: Any,
    log: Any,
    members: Any,
    completions: Any,
) -> int:
    """Run len(completions) steps, the copies in turn; writes when each was complete.

    `members`: tasks of each copy. A step is released when the last one of its copy is complete and
    the time of a submission has passed since. Returns how many steps were completed: fewer than
    asked for when the graph can make no progress.
    """
    world = World(
        tasks,
        starts,
        successors,
        costs,
        shares,
        links,
        ends,
        queued,
        hands,
        clock,
        rates,
        totals,
        log,
    )
    released, done, due = 0, 0, 0.0
    while done < len(completions):
        copy = released % len(members)
        waits = released < len(completions) and totals[MISSING + copy] == 0
        if waits and due <= totals[NOW]:
            totals[MISSING + copy] = members[copy]
            released += 1
            due = totals[NOW] + rates[SUBMIT]
            if rates[CALLER] > 0:
                take_core(world)
            release(world, copy)
            look_all(world, 0)
            continue
        worker = advance(world, due if waits else FOREVER)
        if worker == NONE:
            if not waits:
                break
            continue
        task = finish(world, worker)
        if task < 0:
            continue
        totals[MISSING + tasks[task, STEP]] -= 1
        if totals[MISSING + tasks[task, STEP]] == 0:
            completions[done] = totals[NOW]
            done += 1
            if tasks[task, STEP] == released % len(members):
                due = max(due, totals[NOW] + rates[SUBMIT])
    return done
