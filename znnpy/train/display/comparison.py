"""Compares runs: curves of all of them in one chart each, as a page or a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import znnpy
from znnpy.atomic_files import explained, replacing, write_text
from znnpy.errors import RunError
from znnpy.metrics.metric import METRICS
from znnpy.pictures.line_charts import Line, line_chart
from znnpy.pictures.pages import page
from znnpy.pictures.palette import PALETTE
from znnpy.train.display.history import Curve, History, read_history
from znnpy.train.display.page import smoothed
from znnpy.train.progress import clock
from znnpy.train.run_directory import require_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("blue", "orange", "green", "violet", "magenta", "brown", "cyan", "olive")
WIDE, TALL = 7.0, 3.2  # inches of a chart of a picture
MOST = 2 * len(COLOURS)  # runs: whole lines and dashed ones


@dataclass(frozen=True)
class Compared:
    """A run that is compared: its name, colour, and whether its lines are dashed, as there are few colours."""

    name: str
    colour: str
    dashed: bool
    history: History

    def line(self, curve: Curve, *, mean: bool = False) -> Line:
        """Return a curve of the run."""
        points = smoothed(curve.points) if mean else curve.points
        return Line(self.name, self.colour, points, dashed=self.dashed)


def compare(runs: Sequence[Path]) -> list[Compared]:
    """Read the histories of runs; raises RunError for what is none, or has not made an update."""
    if len(runs) > MOST:
        raise RunError(f"{len(runs)} runs are more than a chart shows; at most {MOST}")
    made = []
    for number, (path, name) in enumerate(zip(runs, _names(runs), strict=True)):
        require_run(path)
        history = read_history(path)
        if not history.loss.points:
            raise RunError(f"{path} has no update in its log yet; `znnpy train` makes them")
        colour, turn = COLOURS[number % len(COLOURS)], number // len(COLOURS)
        made.append(Compared(name, colour, turn % 2 == 1, history))
    return made


def write_html(path: Path, runs: Sequence[Compared]) -> None:
    """Write a page that loads nothing; raises RunError if the disk fails."""
    charts = [(title, line_chart(lines, title)) for title, lines in panels(runs)]
    text = page(
        "znnpy.train.display",
        "comparison.html.j2",
        version=znnpy.__version__,
        runs=runs,
        charts=charts,
        head=[_title(name) for name in _scores(runs)],
        rows=[_row(run, _scores(runs)) for run in runs],
    )
    write_text(path, text, RunError)


def write_png(path: Path, runs: Sequence[Compared]) -> None:
    """Write a picture; raises RunError if the disk fails."""
    figure = figure_of_runs(runs)
    with explained(path, RunError), replacing(path) as new:
        figure.savefig(new, format="png")


def figure_of_runs(runs: Sequence[Compared]) -> Figure:
    """Return a figure of matplotlib with all charts, drawn nowhere yet."""
    from matplotlib.figure import Figure  # takes a second
    from matplotlib.ticker import MaxNLocator

    shown = list(panels(runs))
    columns = 1 if len(shown) == 1 else 2
    rows = -(-len(shown) // columns)
    figure = Figure((columns * WIDE, rows * TALL), dpi=120, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (title, lines) in zip(axes, shown, strict=False):
        for line in lines:
            style = {"color": PALETTE[line.colour][0], "ls": "--" if line.dashed else "-"}
            few = "o" if len(line.points) == 1 else None
            axis.plot(*zip(*line.points, strict=True), label=line.name, marker=few, **style)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("iteration", fontsize=9)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        places = {x for line in lines for x, _ in line.points}
        if len(places) == 1:
            axis.set_xlim(0, 1.05 * max(places))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=8)
    for axis in axes[len(shown) :]:
        axis.set_axis_off()
    return figure


def panels(runs: Sequence[Compared]) -> Iterator[tuple[str, list[Line]]]:
    """Yield the title and lines of each chart in which at least one run has a point."""
    scores = _scores(runs)
    found = [
        ("Loss, mean of updates", [run.line(run.history.loss, mean=True) for run in runs]),
        *(
            (
                f"Validation: {_title(name)}",
                [run.line(run.history.validation.get(name, Curve())) for run in runs],
            )
            for name in scores
        ),
        ("Learning rate", [run.line(run.history.learning_rate) for run in runs]),
        ("Updates per second", [run.line(run.history.updates_per_s) for run in runs]),
        ("Norm of the weights", [run.line(run.history.weights.get("", Curve())) for run in runs]),
    ]
    for title, lines in found:
        there = [line for line in lines if line.points]
        if there:
            yield title, there


def _names(runs: Sequence[Path]) -> list[str]:
    """Return the last parts of paths, of as many as it takes to tell all apart."""
    parts = [path.resolve().parts for path in runs]
    for count in range(1, max(len(it) for it in parts) + 1):
        names = ["/".join(it[-count:]) for it in parts]
        if len(set(names)) == len(set(parts)):
            return names
    return [str(path) for path in runs]


def _scores(runs: Sequence[Compared]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.history.validation))


def _row(run: Compared, scores: Sequence[str]) -> list[str]:
    """Return the cells of a run: iterations, loss, the last value of each validation score, speed, time."""
    history, last = run.history, smoothed(run.history.loss.points)[-1][1]
    values = [history.validation.get(name, Curve()).last for name in scores]
    rate = history.updates_per_s.last
    return [
        f"{history.iteration:,}",
        f"{last:.4g}",
        *("" if value is None else f"{value:.4g}" for value in values),
        "" if rate is None else f"{rate:.3g}",
        clock(history.taken) if history.taken else "",
    ]


def _title(name: str) -> str:
    return METRICS[name].title if name in METRICS else name
