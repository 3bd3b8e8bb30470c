"""Writes the HTML report of a profile: one self-contained file of tables and inline pictures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

import znnpy
from znnpy.atomic_files import write_text
from znnpy.engine.tasks.task_identity import PASS_OF, Kind, Pass
from znnpy.pictures import svg
from znnpy.pictures.pages import page
from znnpy.profile import charts, colours
from znnpy.profile.advice import overhead, rates, width
from znnpy.profile.gantt import MESSAGES_HEIGHT, draw_gantt
from znnpy.profile.machine import describe_figures
from znnpy.profile.recorded_updates import Profile
from znnpy.profile.simulation import by_strategy, rows_of

LOSS_NAMES = {
    "tasks": "tasks",
    "slower tasks": "tasks slower than on one worker",
    "without a core": "without a core, while searching",
    "messages": "waiting for messages of other ranks",
    "data": "waiting for data",
}
# In the order in which bars show them.
WORKER_PARTS = (
    ("busy", "blue"), ("dispatch", "violet"), ("searching", "orange"), ("parked", "pale"),
)  # fmt: skip
CONVOLUTION = {Kind.DIRECT, Kind.TRANSFORM, Kind.PRODUCT, Kind.WINOGRAD}
"""Kinds of tasks that convolve."""
LITTLE = 5e-4
"""Share of the work below which a layer's would be shown as 0.0 %."""


def write_report(summary: Mapping[str, Any], profile: Profile, path: Path) -> None:
    """Write the report of the last run in `summary`, which `profile` recorded."""
    run = summary["runs"][-1]
    write_text(
        path,
        page(
            "znnpy.profile",
            "report.html.j2",
            version=znnpy.__version__,
            summary=summary,
            run=run,
            gantt=draw_gantt(profile),
            message_height=MESSAGES_HEIGHT,
            way_colours=colours.WAYS,
            kind_colours={kind: colours.name_of(kind) for kind in run["kinds"]},
            losses=_losses(run),
            workers=_workers(run),
            layers=_layers(run, summary),
            levels=_levels(run),
            rates=_rates(run, summary["machine"]["sgemm_gflops"]),
            bounds=_bounds(run),
            path=_path(run),
            histogram=charts.histogram(run["sizes"]),
            scaling=_scaling(summary),
            roofline=_roofline(summary),
            changes=_changes(summary),
            policies=_policies(summary),
            sums=_sums(summary),
            ranks=_ranks(summary),
            overhead=overhead(run),
            width=width(run),
        ),
    )


def _losses(run: Mapping[str, Any]) -> dict[str, Any]:
    total = sum(run["losses"].values())
    rows = [
        {
            "name": LOSS_NAMES.get(cause, cause),
            "seconds": seconds,
            "share": seconds / total,
            "colour": colours.LOSSES[cause],
            "bar": charts.single(
                seconds / total, colours.LOSSES[cause], f"{cause}: {seconds / total:.1%}"
            ),
        }
        for cause, seconds in run["losses"].items()
    ]
    whole = charts.stacked(
        [(row["share"], row["colour"], f"{row['name']}: {row['share']:.1%}") for row in rows], 26
    )
    # 1 where nothing was idle: shares are then 0.
    idle = sum(entry["seconds"] for entry in run["waited_for"]) or 1.0
    waited = [{**entry, "share": entry["seconds"] / idle} for entry in run["waited_for"]]
    return {"rows": rows, "bar": whole, "total": total, "waited_for": waited}


def _workers(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            **worker,
            "bar": charts.stacked(
                [
                    (worker[part], colour, f"{part} {worker[part]:.1%}")
                    for part, colour in WORKER_PARTS
                ]
            ),
        }
        for worker in run["workers"]
    ]


def _layers(run: Mapping[str, Any], summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each layer and pass: seconds by kind, and the rate that direct convolution would need."""
    spent: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    passes: list[str] = list(Pass)
    shared: dict[tuple[str, str], int] = defaultdict(int)  # passes that its tasks make
    for entry in run["names"]:
        place = entry["layer"], entry["pass"]
        row = spent[place]
        row[entry["kind"]] = row.get(entry["kind"], 0.0) + entry["seconds"]
        shared[place] = max(shared[place], entry["passes"])
    order = {name: index for index, name in enumerate(summary["layers"])}
    # What belongs to no layer comes last.
    rows = sorted(spent.items(), key=lambda i: (order.get(i[0][0], 1 << 30), passes.index(i[0][1])))
    most = max((sum(kinds.values()) for _, kinds in rows), default=1.0)
    flops = summary["convolution_flops"]
    made = []
    for (layer, step), kinds in rows:
        seconds = sum(kinds.values())
        convolves = CONVOLUTION & set(kinds) and step in PASS_OF.values()
        # Only where all of a pass convolves can a rate be compared with direct convolution's.
        counted = flops.get(layer, 0.0) * shared[layer, step] if convolves else None
        parts = sorted(kinds.items(), key=lambda item: -item[1])
        made.append(
            {
                "layer": layer,
                "step": step,
                "seconds": seconds,
                "share": seconds / run["work"],
                "gflops": counted / seconds * 1e-9 if counted and seconds else None,
                "method": summary["plan"].get(layer, {}).get(step, ""),
                "bar": charts.stacked(
                    [(s / most, colours.name_of(k), f"{k} {svg.seconds(s)}") for k, s in parts]
                ),
            }
        )
    return _joined(made, run["work"])


def _joined(rows: list[dict[str, Any]], work: float) -> list[dict[str, Any]]:
    """Return the rows with those of several layers that take nothing to speak of as one, the last."""
    spent = Counter[str]()
    for row in rows:
        spent[row["layer"]] += row["seconds"]
    few = {layer for layer, seconds in spent.items() if seconds < LITTLE * work}
    if len(few) < 2:
        return rows
    seconds = sum(spent[layer] for layer in few)
    last = {"layer": f"{len(few)} others", "step": "", "seconds": seconds, "share": seconds / work}
    last |= {"gflops": None, "method": "", "bar": ""}
    return [*(row for row in rows if row["layer"] not in few), last]


def _levels(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return fractions of work, critical path and waits by level."""
    totals = {"work": run["work"], "path": run["span"]}
    totals["waited_for"] = sum(level["waited_for"] for level in run["levels"])
    rows = []
    for level in run["levels"]:
        shares = {key: level[key] / total if total else 0.0 for key, total in totals.items()}
        title = f"{shares['path']:.0%} of the critical path"
        rows.append({**level, **shares, "bar": charts.single(shares["path"], "orange", title)})
    return rows


def _rates(run: Mapping[str, Any], sgemm: float) -> list[dict[str, Any]]:
    found = rates(dict(run))
    # At least sgemm's rate, so that its mark lies within the bar.
    most = max([1.0, *(rate["gflops"] / sgemm for rate in found)])
    return [
        {
            **rate,
            "share": rate["gflops"] / sgemm,
            "bar": charts.single(
                rate["gflops"] / sgemm / most,
                colours.name_of(rate["kind"]),
                f"{rate['kind']}: {rate['gflops'] / sgemm:.0%} of sgemm on one core",
                1 / most,
            ),
        }
        for rate in found
    ]


def _bounds(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    workers = run["threads"]
    rows = [
        ("T1 / P: all tasks, shared evenly", run["work"] / workers, "pale"),
        ("Tinf: the critical path alone", run["span"], "pale"),
        ("achieved", run["seconds"], "blue"),
        ("Brent's bound T1 / P + Tinf", run["bound"], "gray"),
    ]
    most = max(seconds for _, seconds, _ in rows)
    return [
        {"name": name, "seconds": s, "bar": charts.single(s / most, colour, svg.seconds(s))}
        for name, s, colour in rows
    ]


def _path(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the critical path, consecutive tasks of one name together."""
    sections, begin = [], 0.0
    # Neighbours only: a name may come back further along the path.
    for key, group in groupby(run["critical_path"], lambda task: (task["name"], task["kind"])):
        tasks = list(group)
        seconds = sum(task["seconds"] for task in tasks)
        first = {"name": key[0], "kind": key[1], "pass": tasks[0]["pass"]}
        sections.append({**first, "tasks": len(tasks), "seconds": seconds, "begin": begin})
        begin += seconds
    bar = charts.stacked(
        [
            (
                section["seconds"] / max(begin, 1e-12),
                colours.name_of(section["kind"]),
                f"{section['name']}: {section['tasks']} tasks, {svg.seconds(section['seconds'])}",
            )
            for section in sections
        ],
        26,
    )
    return {"bar": bar, "sections": sections, "tasks": len(run["critical_path"])}


def _scaling(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return speed-up over one worker: measured, simulated, between Brent's bounds."""
    runs, simulated = summary["runs"], summary.get("simulation")
    if len(runs) < 2 and not simulated:
        return None
    # Without a run on one worker its time is the sum of the tasks.
    one = next((run["seconds"] for run in runs if run["threads"] == 1), runs[0]["work"])
    measured = [(run["threads"], one / run["seconds"]) for run in runs]
    lines: list[charts.Series] = []
    widest = max(run["threads"] for run in runs)
    if simulated:
        workers = simulated["workers"]
        # Without crowded memory both curves are one.
        crowded = simulated.get("unlimited", simulated["seconds"]) != simulated["seconds"]
        widest = max(widest, *workers)
        # Simulated speed-ups are over the simulated time of one, measured ones over the measured.
        base = dict(zip(workers, simulated["seconds"], strict=True)).get(1, one)
        for name, key, class_ in (
            ("simulated", "seconds", "simulated"),
            ("simulated, memory without limits", "unlimited", "unlimited"),
            ("T1 / P", "brent_lower", "bound"),
            ("Brent's bound T1 / P + Tinf", "brent_upper", "bound"),
        ):
            if key not in simulated or (key == "unlimited" and not crowded):
                continue
            points = [(p, base / s) for p, s in zip(workers, simulated[key], strict=True)]
            lines.append((name, class_, points))
    else:
        lines.append(("one worker's time / P", "ideal", [(1, 1), (widest, widest)]))
    band = []
    if simulated:
        band = [(p, base / s) for p, s in zip(workers, simulated["least"], strict=True)]
        band += [(p, base / s) for p, s in zip(workers, simulated["most"], strict=True)][::-1]
    # Speed-ups that were measured here say nothing on a curve of another machine.
    dots = [] if simulated and simulated["memory"] else [("measured", "c-blue", measured)]
    return {
        "picture": charts.speed_ups(lines, dots, band=band),
        "rows": rows_of(simulated) if simulated else [],
        "machine": describe_figures(simulated["memory"])
        if simulated and simulated["memory"]
        else None,
        "measured": [
            {"threads": run["threads"], "seconds": run["seconds"], "speed_up": speed_up}
            for run, (_, speed_up) in zip(runs, measured, strict=True)
        ],
        "simulated": simulated,
        "crowded": bool(simulated) and any(class_ == "unlimited" for _, class_, _ in lines),
    }


def _roofline(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the roofline, with the rates of kinds whose operations are known."""
    found = summary.get("roofline")
    if not found:
        return None
    peak = found["gflops"] * 1e9 * found["cores"]
    # As if all cores did what one was measured to do: memory holds back what stands above its slope. What moves nothing
    # stands at the right edge.
    dots = [
        (
            row["kind"],
            colours.name_of(row["kind"]),
            row["flops"] / max(row["moved"], 1.0),
            row["flops"] / row["shared"],
        )
        for row in found["rows"]
        if row["flops"] and row["shared"] > 0
    ]
    return {
        **found,
        "machine": describe_figures(found),
        "picture": charts.roofline(found["bandwidth"], peak, dots) if dots else None,
    }


def _changes(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the changes that were simulated, those that help most on the most workers first."""
    found = summary.get("what_if")
    if not found:
        return None
    rows = [
        {
            **row,
            "times": [old / new for old, new in zip(found["seconds"], row["seconds"], strict=True)],
        }
        for row in found["changes"]
    ]
    return {**found, "changes": sorted(rows, key=lambda row: -row["times"][-1])}


def _policies(summary: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    found = summary.get("policies")
    if not found:
        return None
    measured = [p["measured_seconds"] for p in found if p["measured_seconds"] is not None]
    most = max(measured, default=1.0)
    return [
        {
            **policy,
            "bar": _policy_bar(policy, most),
            "simulated": dict(sorted(policy.get("simulated", {}).items(), key=lambda i: int(i[0]))),
        }
        for policy in found
    ]


def _policy_bar(policy: Mapping[str, Any], most: float) -> Markup:
    seconds = policy["measured_seconds"]
    if seconds is None:
        return Markup()
    return charts.single(seconds / most, "blue", f"{policy['name']}: {svg.seconds(seconds)}")


def _sums(summary: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    return summary.get("sums") or None


def _ranks(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    found = summary.get("ranks")
    if not found:
        return None
    counts, rows = by_strategy(found)
    return {**found, "counts": counts, "rows": rows}
