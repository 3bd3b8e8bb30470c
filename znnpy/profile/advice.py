"""Advice in plain sentences, drawn from the numbers of a profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from znnpy.profile.machine import describe_figures
from znnpy.profile.reliability import workers

ENOUGH_WIDTH = 4
"""T1 / Tinf per worker from which idle time is rare."""
MOST_OVERHEAD = 0.03  # of the workers' time; more is worth a sentence
# A twentieth: below that nothing a reader could do would show in the time of an update.
NOTABLE = 0.05  # of the workers' time: losses below it are not named
BUSY, HALF = 0.9, 0.5
"""Fractions of their time that workers are busy: nearly all of it, and just worth their cores."""
SLOW = 0.5
"""Fraction of sgemm's rate below which a kind of task is named."""

# For each cause what a user can change; causes without an entry are not named.
HELP = {
    "slower tasks": "The same tasks took less time on one worker. They wait for memory, share caches or "
    "cores, or other programs run too. Try fewer threads, and one worker a real core.",
    "without a core": "The system gave cores to other programs while workers searched for tasks. Use fewer "
    "threads, or a machine of your own.",
    "waking up": "Workers sleep although tasks are ready: they are woken too late. Other programs may "
    "use the same cores.",
    "too few ready tasks": "Nothing was ready at that time. {Wider} gives the graph more width; the list "
    "of tasks that were waited for says where it is narrow.",
    "too coarse tasks": "Idle workers waited for single tasks of more than 2 ms.",
    "messages": "Workers waited for other ranks. Faster links, fewer ranks or another distributed.strategy help; so do "
    "larger batches, which have more to compute between two exchanges.",
    "data": "Workers had run out of {many}{flight}: Python was not ready with the next. Real data may take "
    "longer still than the random data here.",
}
WORDS = {
    "update": {
        "Wider": "A larger output_shape or batch",
        "one": "one update; two updates overlap, which helps somewhat",
        "many": "updates",
        "flight": " (two may be in flight)",
        "larger": "Larger layers or patches make",
    },
    "forward pass": {
        "Wider": "A larger patch",
        "one": "one forward pass",
        "many": "forward passes",
        "flight": "",
        "larger": "A larger patch makes",
    },
}
"""How advice names what was recorded."""


def advise(
    run: dict[str, Any],
    machine: dict[str, Any],
    simulation: dict[str, Any] | None = None,
    what: str = "update",
    doubts: Sequence[str] = (),
) -> list[str]:
    """Return sentences about one run of `summarise` on a machine, the most important first.

    `what` was recorded: "update" or "forward pass". `doubts` come first, and then nothing is said of other
    numbers of workers.
    """
    words = WORDS[what]
    # Doubts before all that would be wrong if they are right; then what brings most.
    found = [
        *_shared(run, machine["cores"]),
        *doubts,
        *_width(run, words),
        *_levels(run, words),
        *_more_workers(None if doubts else simulation),
        *_losses(run, words),
        *_overhead(run, words),
        *_span(run),
        *_rates(run, machine["sgemm_gflops"]),
        *_grain(run),
    ]
    return found or ["Nothing stands out: the workers are busy, and tasks have a good size."]


def overhead(run: dict[str, Any]) -> float:
    """Return the fraction of the workers' time that goes to dispatch and stealing."""
    lost = run["losses"]
    # Never divided by 0, as below: a recording may be empty.
    return float((lost["dispatch"] + lost["stealing"]) / max(sum(lost.values()), 1e-12))


def width(run: dict[str, Any]) -> float:
    """Return T1 / Tinf: how many workers could be busy on average."""
    return float(run["work"] / max(run["span"], 1e-12))


def _shared(run: dict[str, Any], cores: int) -> Iterator[str]:
    if run["threads"] > cores:
        yield (
            f"{workers(run['threads'])} share {cores} core{'' if cores == 1 else 's'}: what follows says "
            "little about a machine with more cores; the simulation below does."
        )


def _width(run: dict[str, Any], words: dict[str, str]) -> Iterator[str]:
    wide, count = width(run), run["threads"]
    if wide < ENOUGH_WIDTH * count:
        yield (
            f"The graph is narrow for {workers(count)}: T1 / Tinf is {wide:.1f}, and where it is four times the "
            f"workers, {ENOUGH_WIDTH * count}, they seldom wait within {words['one']}. {words['Wider']} makes it wider."
        )
    else:
        yield (
            f"The graph is wide enough for {workers(count)}: T1 / Tinf is {wide:.0f}, at least four times as many."
        )


def _levels(run: dict[str, Any], words: dict[str, str]) -> Iterator[str]:
    """Yield advice on the level of a U-Net whose critical path is long for its work."""
    idle = sum(level["waited_for"] for level in run["levels"])
    # The narrowest first, and only one: shortening it shows which is next.
    for level in sorted(run["levels"], key=lambda level: level["width"]):
        path, work = (
            level["path"] / max(run["span"], 1e-12),
            level["work"] / max(run["work"], 1e-12),
        )
        # A tenth of the critical path, or making it wider would not be seen.
        if path > 2 * NOTABLE and level["width"] < ENOUGH_WIDTH * run["threads"]:
            waits = f", and {level['waited_for'] / idle:.0%} of the waits" if idle > 0 else ""
            yield (
                f"Its narrowest part is from {level['first']} to {level['last']}, where voxels lie "
                f"{level['stride']} input voxels apart: {work:.0%} of the work, but {path:.0%} of the critical "
                f"path{waits}; T1 / Tinf is {level['width']:.1f} there. {words['Wider']} makes it wider, fewer "
                "layers there shorter."
            )
            return


def _more_workers(simulation: dict[str, Any] | None) -> Iterator[str]:
    """Yield how many workers the simulator finds busy nearly all the time, and half of it; of the rows of its table."""
    if simulation is None:
        return
    # As the table has it: against one worker as simulated, so that errors of the simulation cancel in part.
    pairs = zip(simulation["workers"], simulation["seconds"], strict=True)
    gains = {count: simulation["seconds"][0] / seconds for count, seconds in pairs}
    busy, half = (_busy(gains, share) for share in (BUSY, HALF))
    where, most = simulation["memory"], max(gains)
    yield (
        f"By simulation{f' of {describe_figures(where)}' if where else ''}, up to {workers(busy)} would be busy for "
        f"{BUSY:.0%} of the time, {gains[busy]:.1f} times as fast as one, and up to {half} for half of it, "
        f"{gains[half]:.1f} times as fast. {workers(most)} would be {gains[most]:.1f} times as fast."
    )
    waits = simulation["waits"][-1]
    share = sum(waits.values()) / (most * simulation["seconds"][-1])
    if share > NOTABLE:
        kinds = " and ".join(list(waits)[:2])
        yield f"{workers(most)} would wait for memory for {share:.0%} of their time, in {kinds} tasks first."


def _busy(gains: dict[int, float], share: float) -> int:
    """Return the most workers so that they, and any fewer, are busy for such a share of the time."""
    found = min(gains)
    for count in sorted(gains):
        if gains[count] < share * count:
            break
        found = count
    return found


def _losses(run: dict[str, Any], words: dict[str, str]) -> Iterator[str]:
    total = max(sum(run["losses"].values()), 1e-12)
    for cause, seconds in sorted(run["losses"].items(), key=lambda item: -item[1]):
        if cause in HELP and seconds / total > NOTABLE:
            name = "waiting for data" if cause == "data" else cause
            spent = "spent without a core" if cause == "without a core" else f"lost to {name}"
            yield f"{seconds / total:.0%} of the workers' time is {spent}. {HELP[cause].format(**words)}"


def _overhead(run: dict[str, Any], words: dict[str, str]) -> Iterator[str]:
    share = overhead(run)
    if share > MOST_OVERHEAD:
        yield (
            f"Dispatch and stealing take {share:.1%} of the workers' time, more than "
            f"{MOST_OVERHEAD:.0%}: tasks of {_microseconds(run['sizes']['median'])} (median) are "
            f"small for so many workers. {words['larger']} them larger."
        )


def _span(run: dict[str, Any]) -> Iterator[str]:
    spent: Counter[tuple[str, str]] = Counter()
    for task in run["critical_path"]:
        spent[task["layer"], task["pass"]] += task["seconds"]
    if spent and run["span"] > 0 and width(run) < ENOUGH_WIDTH * run["threads"]:
        (layer, step), seconds = spent.most_common(1)[0]
        yield (
            f"{seconds / run['span']:.0%} of the critical path is the {_named(step)} of {layer}: only what is "
            "on that path makes Tinf shorter."
        )


def _named(step: str) -> str:
    return f"{step} pass" if step in ("forward", "backward") else step


def _rates(run: dict[str, Any], sgemm: float) -> Iterator[str]:
    for rate in rates(run):
        share = rate["gflops"] / sgemm
        # A tenth of the work, as kinds that take less are not worth tuning.
        if share < SLOW and rate["seconds"] / run["work"] > 2 * NOTABLE:
            yield (
                f"{rate['kind'].capitalize()} tasks run at {rate['gflops']:.0f} GFLOP/s, {share:.0%} of "
                f"sgemm, and take {rate['seconds'] / run['work']:.0%} of the work."
            )


def rates(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return, by kind of task, seconds and operations of the tasks whose operations are known, per update."""
    seconds: Counter[str] = Counter()
    flops: Counter[str] = Counter()
    for entry in run["names"]:
        if entry["flops"] and entry["seconds"] > 0:
            seconds[entry["kind"]] += entry["seconds"]
            flops[entry["kind"]] += entry["flops"]
    return [
        {"kind": kind, "seconds": spent, "flops": flops[kind], "gflops": flops[kind] / spent * 1e-9}
        for kind, spent in seconds.most_common()
    ]


def _grain(run: dict[str, Any]) -> Iterator[str]:
    sizes = run["sizes"]
    if sizes["small"] > 2 * NOTABLE:
        # 20 microseconds and 2 ms are `summary.SMALLEST` and `LARGEST`.
        yield f"{sizes['small']:.0%} of the work is in tasks below 20 microseconds."
    if sizes["large"] > 2 * NOTABLE:
        yield f"{sizes['large']:.0%} of the work is in tasks above 2 milliseconds."


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} microseconds"
