"""The scheduler's protocol in simulated time: the workers of one process and the tasks that they run.

It follows `worker.py` in all that decides who runs what and when: the kept successor, deques by band, the injector,
thieves from a random victim on, parking and wake-ups. Time is not measured but added up: the tasks' own, and a cost
for each dispatch, steal and wake-up. `simulated_ranks.py` has the loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.scheduling.control_block import BANDS

COUNTER, JOINS, BAND, STEP, PHASE, RUNS = range(6)
"""Columns of `tasks`; RUNS counts how often a task has started."""
DOING, RANDOM = range(2)
"""Columns of `hands`: the task that a worker runs (or NONE, WAKING), its xorshift number."""
REMAINING, SHARE, DEMAND, IDLE_SINCE = range(4)
"""Columns of `clock`: seconds left of what a worker does, their memory-bound share, bytes a second that it asks of
memory meanwhile, idle since."""
DISPATCH, SUCCESSOR, STEAL, WAKE, SPIN, SUBMIT, BANDWIDTH, MEMORY, CALLER = range(9)
"""Words of `rates`: seconds, how many cores' worth of memory traffic the machine carries, and its bytes a second."""
NOW, OVERHEAD, STEALS, WAKE_UPS, RAN, MISSING = range(6)
"""Words of `totals`; MISSING is the first of one word a copy, runs still to come of its step."""
RELEASED, COMPLETED = range(2)
"""Words of `steps`."""
# Below every task: `>= 0` is a worker in a task.
NONE, WAKING = -1, -2
# Later than anything that is simulated, and finite: differences and comparisons of it give no NaN.
FOREVER = 1e300


class World(NamedTuple):
    """The state of a simulated process: all that changes or is looked up while time passes.

    Successors of task t: successors[starts[t] : starts[t + 1]]. `costs[t, r]`: seconds of run r of task t, the
    columns in turn. `traffic`: bytes that a task moves from and to memory; `waited`: seconds by which all its runs
    were longer than `costs`, for memory. `links`: the entry below and above each task in its deque. `ends`: oldest
    and newest entry of each queue and band; the last queue is the injector's. `queued`: entries of each band in all
    queues. `log`: task, worker and start of each run, as many as it has rows. `members`: tasks of each copy. `steps`:
    how many were released and completed, `completions` when; `due`: when the next one may be released.
    """

    tasks: Any
    starts: Any
    successors: Any
    costs: Any
    shares: Any
    traffic: Any
    waited: Any
    links: Any
    ends: Any
    queued: Any
    hands: Any
    clock: Any
    rates: Any
    totals: Any
    log: Any
    members: Any
    steps: Any
    due: Any
    completions: Any


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
    # Counted over all queues, so that idle workers skip a band that holds nothing without a look at each queue.
    world.queued[world.tasks[task, BAND]] += 1


@inlined
def remove(world: World, queue: int, band: int, side: int) -> Any:
    """Remove the oldest (side 0, as a thief) or newest (side 1, as the owner) entry, or NONE."""
    row = queue * BANDS + band
    task = world.ends[row, side]
    if task != NONE:
        world.queued[band] -= 1
        # side 1 is the newest, whose `links[..., 0]` is the one below it; side 0 the oldest, whose `links[...,
        # 1]` is above.
        following = world.links[task, 1 - side]
        world.ends[row, side] = following
        if following == NONE:
            world.ends[row, 1 - side] = NONE
        else:
            world.links[following, side] = NONE
    return task


@inlined
def more_urgent(world: World, queue: int, band: int) -> Any:
    """Return whether the worker's own deques or the injector hold a task of an earlier band."""
    injector = len(world.hands)
    for earlier in range(band):
        own = world.ends[queue * BANDS + earlier, 0]
        if own != NONE or world.ends[injector * BANDS + earlier, 0] != NONE:
            return True
    return False


@inlined
def nearby(world: World, worker: int) -> Any:
    """Return (task, whether it came from the injector): the worker's newest or the injector's oldest."""
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
    """Return the next of the worker's own xorshift numbers, not negative."""
    number = world.hands[worker, RANDOM]
    number ^= number << 13
    # As `worker.random_number`, number for number: the mask removes the copies of the sign that int64 shifts
    # in.
    number ^= (number >> 7) & ((1 << 57) - 1)
    number ^= number << 17
    world.hands[worker, RANDOM] = number
    # 62 bits: not negative, and a remainder by few victims is as good as even.
    return number & ((1 << 62) - 1)


@inlined
def far(world: World, worker: int) -> Any:
    """Return (task, whether its deque holds more): the oldest of the most urgent band of any victim."""
    victims = len(world.hands) + 1
    first = random_number(world, worker) % victims
    for band in range(BANDS):
        if world.queued[band] == 0:
            continue
        # Victims in turn from a random one, as `worker.far` takes them, with the injector among them.
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
    """Start a task on a worker: its own seconds, dispatch, and the time of finding it."""
    tasks, clock, rates, totals = world.tasks, world.clock, world.rates, world.totals
    # A recording has several runs of each task, which are repeated in turn: their scatter stays in the
    # simulation.
    own = world.costs[task, tasks[task, RUNS] % world.costs.shape[1]]
    told = world.starts[task + 1] - world.starts[task]
    extra += rates[DISPATCH] + rates[SUCCESSOR] * told
    # Before any successor is told, as in `worker.execute`.
    tasks[task, COUNTER] = tasks[task, JOINS]
    tasks[task, RUNS] += 1
    world.hands[worker, DOING] = task
    clock[worker, REMAINING] = own + extra
    # Only the task's own seconds are bound by memory, dispatch is not.
    clock[worker, SHARE] = world.shares[task] * own / (own + extra) if own > 0 else 0.0
    clock[worker, DEMAND] = world.traffic[task] / (own + extra) if own > 0 else 0.0
    row = int(totals[RAN])
    # The log holds the first runs; what comes later is not kept.
    if row < len(world.log):
        world.log[row, 0], world.log[row, 1], world.log[row, 2] = task, worker, totals[NOW]
    totals[OVERHEAD] += extra
    totals[RAN] += 1


@inlined
def spins(world: World, worker: int) -> Any:
    """Return whether an idle worker still looks for work, and is not parked yet."""
    # Nobody spins in simulated time: since when a worker is idle says whether it would have parked by now.
    return world.totals[NOW] - world.clock[worker, IDLE_SINCE] <= world.rates[SPIN]


@inlined
def occupy(world: World, worker: int, seconds: float) -> None:
    """Let a worker do something that needs no memory."""
    world.clock[worker, REMAINING] = seconds
    world.clock[worker, SHARE] = world.clock[worker, DEMAND] = 0.0


@inlined
def wake(world: World, count: int) -> None:
    """Claim up to `count` parked workers; they look for work after the time of a wake-up."""
    for worker in range(len(world.hands)):
        if count == 0:
            return
        # Parked are those without a task who no longer spin; those who spin find the work by `look_all`.
        if world.hands[worker, DOING] == NONE and not spins(world, worker):
            world.hands[worker, DOING] = WAKING
            occupy(world, worker, world.rates[WAKE])
            world.totals[WAKE_UPS] += 1
            count -= 1


@inlined
def look(world: World, worker: int) -> Any:
    """Let an idle worker look for a task everywhere; return whether it found one."""
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
    """Let every worker that is idle and not yet parked look for a task, from `first` on in turn."""
    for turn in range(first, first + len(world.hands)):
        worker = turn % len(world.hands)
        idle = world.hands[worker, DOING] == NONE and spins(world, worker)
        # If one finds nothing, nobody does: all look at the same queues, and nothing changes in between.
        if idle and not look(world, worker):
            return


@inlined
def arrive(world: World, task: int) -> Any:
    """Bring one token to a task; return true for the last."""
    world.tasks[task, COUNTER] -= 1
    return world.tasks[task, COUNTER] == 0


@inlined
def tell(world: World, worker: int, task: int) -> Any:
    """Bring a token to every successor; return the one to run next, or NONE."""
    tasks = world.tasks
    kept, pushed = NONE, 0
    for place in range(world.starts[task], world.starts[task + 1]):
        other = world.successors[place]
        if arrive(world, other):
            if kept == NONE:
                kept = other
                continue
            # `<=`: of equal bands the newest is kept, as in `worker.tell_successors`.
            if tasks[other, BAND] <= tasks[kept, BAND]:
                other, kept = kept, other
            push(world, worker, other)
            pushed += 1
    if kept != NONE and more_urgent(world, worker, tasks[kept, BAND]):
        push(world, worker, kept)
        kept = NONE
        pushed += 1
    if pushed > 0:
        # Two at most, as in `worker.tell_successors`: thieves wake the others.
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
    """Give the caller, who prepares a step, a worker's core: an idle one's if there is one."""
    # Drawn whether it is needed or not, so that the same numbers follow in either case.
    unlucky = random_number(world, 0) % len(world.hands)
    for worker in range(len(world.hands)):
        if world.hands[worker, DOING] == NONE:
            unlucky = worker
    # An idle worker's core is taken first, as the system would do.
    if world.hands[unlucky, DOING] == NONE:
        world.hands[unlucky, DOING] = WAKING
        occupy(world, unlucky, 0.0)
    left = world.clock[unlucky, REMAINING]
    world.clock[unlucky, REMAINING] += world.rates[CALLER]
    # As many bytes in a longer time.
    world.clock[unlucky, DEMAND] *= left / max(world.clock[unlucky, REMAINING], 1e-12)


@inlined
def in_tasks(world: World) -> Any:
    """Return how many workers run a task."""
    busy = 0
    for worker in range(len(world.hands)):
        busy += world.hands[worker, DOING] >= 0
    return busy


@inlined
def fair_share(world: World) -> Any:
    """Return the most bytes a second that a worker gets of memory: who asks for less leaves the rest to the others."""
    hands, clock, left = world.hands, world.clock, world.rates[MEMORY]
    asked, askers = 0.0, 0
    for worker in range(len(hands)):
        if hands[worker, DOING] >= 0 and clock[worker, DEMAND] > 0:
            asked += clock[worker, DEMAND]
            askers += 1
    if asked <= left:
        return FOREVER
    # Each round sets those apart who ask for no more than an equal part of what is left (max-min fairness): the part
    # of the others grows, until nobody new has enough.
    share, before = left / askers, 0.0
    while True:
        left, others = world.rates[MEMORY], 0
        for worker in range(len(hands)):
            if hands[worker, DOING] >= 0 and clock[worker, DEMAND] > share:
                others += 1
            elif hands[worker, DOING] >= 0:
                left -= clock[worker, DEMAND]
        before, share = share, left / max(others, 1)
        if others == 0 or share <= before:
            return max(share, before)


@inlined
def slower(world: World, worker: int, busy: int, share: float) -> Any:
    """Return by which factor a worker's task is slower beside others: `busy` run tasks, each has `share` of memory."""
    # A linear model of what was measured on this machine: each further busy worker takes its share of the traffic.
    crowded = 1 + world.clock[worker, SHARE] * max(0, busy - 1) / world.rates[BANDWIDTH]
    return max(crowded, world.clock[worker, DEMAND] / share)


@inlined
def advance(world: World, until: float) -> Any:
    """Let time pass to the next end of a task, or to `until`; return the worker, or NONE."""
    hands, clock, now = world.hands, world.clock, world.totals[NOW]
    busy, share = in_tasks(world), fair_share(world)
    first, soonest = NONE, until - now
    for worker in range(len(hands)):
        if hands[worker, DOING] != NONE:
            left = clock[worker, REMAINING] * slower(world, worker, busy, share)
            # An end at the same moment as `until` wins, and of equal ends the first worker: the order is fixed.
            if left < soonest or (left == soonest and first == NONE):
                first, soonest = worker, left
    for worker in range(len(hands)):
        passed = soonest / slower(world, worker, busy, share)
        if hands[worker, DOING] >= 0:
            world.waited[hands[worker, DOING]] += soonest - passed
        # All tasks proceed by the same time, each by its own speed at this number of busy workers; rounding
        # must leave no negative rest.
        clock[worker, REMAINING] = max(0.0, clock[worker, REMAINING] - passed)
    world.totals[NOW] = until if first == NONE else now + soonest
    return first


@inlined
def finish(world: World, worker: int) -> Any:
    """End a worker's task and let it go on; return the task, or WAKING."""
    task, kept = world.hands[worker, DOING], NONE
    world.hands[worker, DOING] = NONE
    # Before it looks: it has been idle since now, and so it still spins.
    world.clock[worker, IDLE_SINCE] = world.totals[NOW]
    if task >= 0:
        kept = tell(world, worker, task)
    if kept != NONE:
        # The kept successor costs no steal: it never goes through a deque.
        start(world, worker, kept, 0.0)
    # From this worker on: it looks before the others, as it is awake.
    look_all(world, worker)
    return task


@inlined
def waits(world: World) -> Any:
    """Return whether a step is to be released as soon as it is due: its copy's last one is complete."""
    released = world.steps[RELEASED]
    copy = released % len(world.members)
    return released < len(world.completions) and world.totals[MISSING + copy] == 0


@inlined
def horizon(world: World) -> Any:
    """Return the time of the next event, if nothing arrives from outside; FOREVER if there is none."""
    soonest, busy, share = FOREVER, in_tasks(world), fair_share(world)
    for worker in range(len(world.hands)):
        if world.hands[worker, DOING] != NONE:
            left = world.clock[worker, REMAINING] * slower(world, worker, busy, share)
            soonest = min(soonest, world.totals[NOW] + left)
    return min(soonest, max(world.due[0], world.totals[NOW])) if waits(world) else soonest


@inlined
def begin(world: World) -> None:
    """Release the next step."""
    copy = world.steps[RELEASED] % len(world.members)
    world.totals[MISSING + copy] = world.members[copy]
    world.steps[RELEASED] += 1
    # Measured from this release on: submissions take time one after the other, however soon copies are free.
    world.due[0] = world.totals[NOW] + world.rates[SUBMIT]
    if world.rates[CALLER] > 0:
        take_core(world)
    release(world, copy)
    look_all(world, 0)


@inlined
def complete(world: World, copy: int) -> None:
    """Count a completed step of this copy."""
    world.completions[world.steps[COMPLETED]] = world.totals[NOW]
    world.steps[COMPLETED] += 1
    # The step that is complete makes room for the next one of its copy, which the caller begins to submit only
    # now.
    if copy == world.steps[RELEASED] % len(world.members):
        world.due[0] = max(world.due[0], world.totals[NOW] + world.rates[SUBMIT])


@inlined
def turn(world: World) -> Any:
    """Process the next event; return the task that ended, or NONE.

    A step is released when the last one of its copy is complete and the time of a submission has passed since.
    """
    if waits(world) and world.due[0] <= world.totals[NOW]:
        begin(world)
        return NONE
    worker = advance(world, world.due[0] if waits(world) else FOREVER)
    if worker == NONE:
        return NONE
    task = finish(world, worker)
    if task < 0:
        return NONE
    copy = world.tasks[task, STEP]
    world.totals[MISSING + copy] -= 1
    if world.totals[MISSING + copy] == 0:
        complete(world, copy)
    return task


@inlined
def deliver(world: World, task: int, now: float) -> None:
    """Bring a token from outside, before any other event here."""
    # First let time pass: ends of tasks until `now` are due before, and the caller has chosen this event as the
    # earliest.
    advance(world, now)
    if arrive(world, task):
        push(world, len(world.hands), task)
        # One task became ready, so one sleeper is enough.
        wake(world, 1)
        look_all(world, 0)
