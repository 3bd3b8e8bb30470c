"""Renders `run.html`: the curves, slices and scores of one run in a file that loads nothing."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

import znnpy
from znnpy.errors import RunError
from znnpy.metrics.metric import METRICS
from znnpy.pictures.line_charts import Line, line_chart
from znnpy.pictures.pages import page
from znnpy.train.display.history import Curve, History, Point
from znnpy.train.display.norms import WHOLE
from znnpy.train.log import OUTPUT
from znnpy.train.progress import clock
from znnpy.train.run_directory import PICTURE, RESULT, read_object

REFRESH = 5  # seconds after which a browser reads the page of a run that trains again
SMOOTHED = 40  # parts of a curve over which its smooth one is a mean
LARGEST_PICTURE = 8 << 20  # bytes


@dataclass(frozen=True)
class Facts:
    """What does not change while a run trains: its name, its number of iterations, what its page shows of scores."""

    name: str
    iterations: int
    score: str = "loss"
    higher: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart with its heading, a sentence, and its legend: names with colours."""

    title: str
    picture: Markup
    words: str = ""
    legend: Mapping[str, str] = field(default_factory=dict)


def render(
    facts: Facts,
    history: History,
    pictures: Mapping[int, str],
    state: str,
    *,
    training: bool = False,
    run: Path | None = None,
) -> str:
    """Return the page; `state` is a phrase such as "finished". With `run`, its final scores and picture too."""
    return page(
        "znnpy.train.display",
        "run.html.j2",
        version=znnpy.__version__,
        name=facts.name,
        state=state,
        refresh=REFRESH if training else None,
        written=time.strftime("%Y-%m-%d %H:%M:%S"),
        tiles=list(_tiles(facts, history, training)),
        charts=[it for it in charts(facts, history) if it.picture],
        norms=_layers(history),
        changes=history.changes,
        pictures=sorted(pictures.items()),
        tables=_tables(run) if run else [],
        final=_final(run) if run else None,
    )


def _tiles(facts: Facts, history: History, training: bool) -> Iterable[tuple[str, str]]:
    yield f"{history.iteration:,}", f"of {facts.iterations:,} iterations"
    smooth = smoothed(history.loss.points)
    if smooth:
        yield f"{smooth[-1][1]:.4g}", "loss"
    best = _best(history.validation.get(facts.score), facts.higher)
    if best:
        yield f"{best[1]:.4g}", f"best validation {_title(facts.score)}, iteration {best[0]:,.0f}"
    rate = history.updates_per_s.last
    if rate:
        yield f"{rate:.3g}", "updates/s"
        left = (facts.iterations - history.iteration) / rate
        if training and left > 0:
            yield clock(left), "left"
    if history.taken >= 1:
        yield clock(history.taken), "trained"


def _best(curve: Curve | None, higher: bool) -> Point | None:
    if curve is None or not curve.points:
        return None
    choose = max if higher else min
    return choose(curve.points, key=lambda point: point[1])


def charts(facts: Facts, history: History) -> Iterable[Chart]:
    """Yield the charts of a run; of what is not known yet the picture is empty."""
    yield _progress("Loss", history.loss, history.validation.get("loss", Curve()))
    for name, curve in history.losses.items():
        words = "Times its weight, as it counts in the loss."
        validated = history.validation.get(f"{OUTPUT}{name}", Curve())
        yield _progress(f"Loss of output {name}", curve, validated, words)
    scores = {
        name: it
        for name, it in history.validation.items()
        if name not in ("loss", "voxel_error") and not name.startswith(OUTPUT)
    }
    for name, curve in scores.items():
        points = curve.points
        line = Line(_title(name), "orange", points, dots=len(points) <= 100)
        yield _chart(f"Validation: {_title(name)}", [line])
    errors = history.validation.get("voxel_error", Curve())
    yield _progress("Voxel error", history.voxel_error, errors, "Share of voxels that are wrong.")
    rates = history.learning_rate.points
    yield _chart("Learning rate", [Line("learning rate", "violet", rates)])
    speed = history.updates_per_s.points
    words = "Updates per second, over the last ten."
    if history.voxels_per_s.last:
        words += f" {history.voxels_per_s.last:,.0f} output voxels per second now."
    yield _chart("Throughput", [Line("updates/s", "green", speed)], words)
    words = "Channels of relus that are not 0 for all voxels of a patch."
    living = Line("share", "forest", history.living.points, dots=True)
    yield _chart("Living channels", [living], words, (0.0, 1.0))
    for title, curves, colour, words in (
        ("Norm of the weights", history.weights, "cyan", "Euclidean, of all that is learned."),
        (
            "Norm of the gradients",
            history.gradients,
            "magenta",
            "As the optimizer remembers them: with Adam the root of their mean square, with momentum their mean.",
        ),
    ):
        points = curves.get(WHOLE, Curve()).points
        yield _chart(title, [Line(title, colour, points, dots=len(points) <= 60)], words)


def _progress(title: str, updates: Curve, validation: Curve, words: str = "") -> Chart:
    """Return the chart of what updates and validations have: their loss, or share of wrong voxels."""
    raw, validated = updates.points, validation.points
    lines = [
        Line("updates", "blue", raw, faint=True),
        Line("mean of updates", "blue", smoothed(raw)),
        Line("validation", "orange", validated, dots=len(validated) <= 100),
    ]
    return _chart(title, lines, words)


def _chart(
    title: str, lines: Sequence[Line], words: str = "", span: tuple[float, float] | None = None
) -> Chart:
    shown = [line for line in lines if line.points]
    legend = {line.name: line.colour for line in shown if not line.faint}
    return Chart(
        title, line_chart(shown, title, span=span), words, legend if len(legend) > 1 else {}
    )


def smoothed(points: Sequence[Point]) -> list[Point]:
    """Return a curve of exponential means over about a fortieth of all points, unbiased at the start."""
    keep = 1 - 1 / max(1.0, len(points) / SMOOTHED)
    found, weight, value = [], 0.0, 0.0
    for x, y in points:
        weight, value = keep * weight + 1 - keep, keep * value + (1 - keep) * y
        found.append((x, value / weight))
    return found


def _layers(history: History) -> list[tuple[str, str, str, str]]:
    """Return layer, norm of its filters at first and at last, and of their gradients at last."""
    rows = []
    for name, curve in history.weights.items():
        if name != WHOLE and (points := curve.points):
            gradient = history.gradients.get(name, Curve()).last
            rows.append(
                (
                    name,
                    f"{points[0][1]:.4g}",
                    f"{points[-1][1]:.4g}",
                    "" if gradient is None else f"{gradient:.3g}",
                )
            )
    return rows


def _title(name: str) -> str:
    return METRICS[name].title if name in METRICS else name


def _tables(run: Path) -> list[dict[str, Any]]:
    """Return the final scores: a table for each volume and output."""
    try:
        result = read_object(run / RESULT) or {}
    except RunError:
        return []
    found = []
    for each in result.get("evaluations", ()):
        scores = each["scores"]
        names = dict.fromkeys(name for row in scores.values() for name in row if name in METRICS)
        rows = [
            (_title(name), [_text(name, row.get(name)) for row in scores.values()])
            for name in names
            if any(row.get(name) is not None for row in scores.values())
        ]
        volume = f"{each['volume']} ({each['output']}), loss {each['loss']:.4f}"
        found.append({"volume": volume, "head": list(scores), "rows": rows})
    return found


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    several = value if isinstance(value, list) else [value]
    return " ".join(f"{it:{METRICS[name].format}}" for it in several if it is not None)


def _final(run: Path) -> str | None:
    try:
        data = (run / PICTURE).read_bytes()
    except OSError:
        return None
    return base64.b64encode(data).decode() if len(data) <= LARGEST_PICTURE else None
