"""A Gantt chart of one update: a row per worker, a colour per kind of task; messages and ready tasks below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from znnpy.pictures import svg
from znnpy.profile.colours import WAYS, name_of
from znnpy.profile.messages import lanes
from znnpy.profile.recorded_updates import Profile
from znnpy.profile.timeline import ready_count

# More than pixels of a screen: a chart may be zoomed.
UNITS = 6000
"""Points across: shorter tasks of one kind that follow each other are drawn as one."""
# Pixels of the curve of ready tasks, of messages and of the axis; they share one column with the workers' rows.
READY_HEIGHT = 70  # pixels, as the next two
MESSAGES_HEIGHT = 60
AXIS = 18


@dataclass
class _Slice:
    left: int
    right: int
    class_: str
    title: str
    tasks: int = 1


@dataclass(frozen=True)
class Gantt:
    """The parts of the chart of one update."""

    rows: Markup
    messages: Markup | None
    ready: Markup
    row_height: float
    workers: int
    seconds: float
    update: int
    most_ready: int
    kinds: list[str]


def draw_gantt(profile: Profile) -> Gantt:
    """Draw the update in the middle of the recording, from its release to its last task."""
    # In the middle: neither the pipeline's filling nor its end.
    update = profile.updates // 2
    low, high = _window(profile, update)
    workers = len(profile.workers)
    # All workers in about 240 pixels; a row of 6 is the least that shows colours, and 28 the most that looks
    # like one.
    height = float(np.clip(240 / workers, 6, 28))
    ready, most = _ready(profile, low, high)
    rows = [
        _rectangle(slice_, number * height, height)
        for number in range(workers)
        for slice_ in _slices(profile, number, update, low, high)
    ]
    span = (high - low) * 1e-9
    label = f"Tasks of {workers} workers during update {update}"
    picture = _picture(rows, height * workers, label)
    axis = [
        # Every other one goes where the page is narrow.
        svg.text(
            value / span,
            READY_HEIGHT + AXIS - 4,
            svg.seconds(value),
            "tick" if number % 2 else "tick between",
            "middle",
        )
        for number, value in enumerate(svg.round_steps(span, 8)[1:])
        # Words at the right edge would be cut off.
        if value < 0.97 * span
    ]
    rules = [
        svg.rule(value / span, 0, READY_HEIGHT)
        for value in svg.round_steps(span, 8)
        if value < span
    ]
    below = svg.figure(
        READY_HEIGHT + AXIS, [*rules, ready, svg.level(READY_HEIGHT, "axis"), *axis], "Ready tasks"
    )
    kinds = sorted({profile.graph.kinds[task] for task in range(profile.graph.size)})
    return Gantt(
        picture, _messages(profile, low, high), below, height, workers, span, update, most, kinds
    )


def _picture(drawn: Sequence[Markup], height: float, label: str) -> Markup:
    return svg.element(
        "svg",
        *drawn,
        width="100%",
        height=height,
        viewBox=f"0 0 {UNITS} {height}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def _messages(profile: Profile, low: int, high: int) -> Markup | None:
    """Draw messages under way in the window, in as many rows as are under way at once."""
    shown = [it for it in profile.messages if it.arrived > low and it.started < high]
    if not shown:
        return None
    scale, rows = UNITS / (high - low), lanes(shown)
    height = MESSAGES_HEIGHT / len(rows)
    drawn = []
    for number, row in enumerate(rows):
        for it in row:
            left = int((max(it.started, low) - low) * scale)
            # A point at least, or short ones would vanish.
            right = max(left + 1, int((min(it.arrived, high) - low) * scale))
            took = svg.seconds((it.arrived - it.started) * 1e-9)
            title = f"{it.way} {it.what}, {it.bytes} bytes, rank {it.peer}, {took}"
            slice_ = _Slice(left, right, f"c-{WAYS[it.way]}", title)
            drawn.append(_rectangle(slice_, number * height, height))
    return _picture(drawn, MESSAGES_HEIGHT, f"{len(shown)} messages")


def _window(profile: Profile, update: int) -> tuple[int, int]:
    times = profile.timeline
    own = profile.graph.step == update % times.copies
    round_ = update // times.copies
    return int(times.start[round_, own].min()), int(times.end[round_, own].max())


def _slices(profile: Profile, number: int, update: int, low: int, high: int) -> list[_Slice]:
    """Return the worker's tasks in the window, short ones of a kind joined."""
    scale = UNITS / (high - low)
    made: list[_Slice] = []
    for task in _tasks(profile, number, low, high):
        left = int((max(task["start"], low) - low) * scale)
        right = max(left + 1, int((min(task["end"], high) - low) * scale))
        class_ = f"c-{name_of(task['kind'])}" + ("" if task["update"] == update else " other")
        last = made[-1] if made else None
        # Neighbours of one colour within a point are one: a chart of all tasks would be megabytes.
        if last and last.class_ == class_ and left < last.right:
            last.right, last.tasks = max(right, last.right), last.tasks + 1
            last.title = f"{last.tasks} tasks, the last: {task['title']}"
            continue
        made.append(_Slice(max(left, last.right if last else 0), right, class_, task["title"]))
    return [slice_ for slice_ in made if slice_.right > slice_.left]


def _tasks(profile: Profile, number: int, low: int, high: int) -> Iterator[dict[str, Any]]:
    times, graph = profile.timeline, profile.graph
    inside = (times.worker == number) & (times.end > low) & (times.start < high) & times.ran
    places = np.argwhere(inside)
    order = np.argsort(times.start[inside], kind="stable")
    for round_, task in places[order].tolist():
        start, end = int(times.start[round_, task]), int(times.end[round_, task])
        yield {
            "start": start,
            "end": end,
            "kind": graph.kinds[task],
            "update": times.update(round_, task),
            "title": f"{graph.names[task]} ({graph.kinds[task]}), {svg.seconds((end - start) * 1e-9)}"
            f", at {svg.seconds((start - low) * 1e-9)}, update {times.update(round_, task)}"
            + (", stolen" if times.stolen[round_, task] == 1 else ""),
        }


def _rectangle(slice_: _Slice, top: float, height: float) -> Markup:
    return svg.element(
        "rect",
        svg.element("title", slice_.title),
        x=slice_.left,
        width=slice_.right - slice_.left,
        # A gap of 12 % between rows.
        y=top + 0.06 * height,
        height=0.88 * height,
        class_=slice_.class_,
    )


def _ready(profile: Profile, low: int, high: int, bins: int = 600) -> tuple[Markup, int]:
    """Return the curve of the most ready tasks in each bin across, and its maximum."""
    ready = ready_count(profile.timeline)
    bounds = np.linspace(low, high, bins + 1).astype(np.int64)
    values = ready.at(bounds[:-1])
    places = np.searchsorted(bounds, ready.times, side="right") - 1
    inside = (places >= 0) & (places < bins)
    # The most in each bin, not an average: a short peak is what is looked for.
    np.maximum.at(values, places[inside], ready.values[inside])
    most = int(values.max(initial=1))
    points = [(0.0, 0.0)]
    for index, value in enumerate(values.tolist()):
        # Two points a bin: steps, as numbers of tasks are.
        points += [(index / bins, value / most), ((index + 1) / bins, value / most)]
    points.append((1.0, 0.0))
    return svg.stretched(0, READY_HEIGHT, [svg.curve(points, "area", "polygon")]), most
