"""Shows a learning-rate range test: loss over rate as JSON, a page or a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import znnpy
from znnpy.atomic_files import explained, replacing, write_text
from znnpy.errors import RunError
from znnpy.pictures.line_charts import Line, line_chart
from znnpy.pictures.pages import page
from znnpy.pictures.palette import PALETTE
from znnpy.train.rate_range import RangeTest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Loss over learning rate"
SIZE = (7.0, 4.0)  # inches


def as_record(found: RangeTest) -> dict[str, Any]:
    """Return a test as JSON holds it: rates and losses by update, and what they suggest."""
    return {
        "optimizer": found.optimizer,
        "suggested": found.suggestion.rate,
        "steepest": found.suggestion.steepest,
        "diverged": found.diverged,
        "learning_rate": list(found.rates),
        "loss": list(found.losses),
        "smoothed": found.suggestion.smoothed.tolist(),
    }


def write_json(path: Path, found: RangeTest) -> None:
    """Write a test as JSON; raises RunError if the disk fails."""
    write_text(path, json.dumps(as_record(found), indent=1) + "\n", RunError)


def write_html(path: Path, found: RangeTest) -> None:
    """Write a page that loads nothing; raises RunError if the disk fails."""
    lines = curves(found)
    text = page(
        "znnpy.train.display",
        "rates.html.j2",
        version=znnpy.__version__,
        title=TITLE,
        lines=lines,
        chart=line_chart(lines, TITLE, height=300.0, rates=True),
        words=described(found),
    )
    write_text(path, text, RunError)


def write_png(path: Path, found: RangeTest) -> None:
    """Write a picture; raises RunError if the disk fails."""
    figure = figure_of_rates(found)
    with explained(path, RunError), replacing(path) as new:
        figure.savefig(new, format="png")


def figure_of_rates(found: RangeTest) -> Figure:
    """Return a figure of matplotlib, drawn nowhere yet."""
    from matplotlib.figure import Figure  # takes a second

    figure = Figure(SIZE, dpi=120, layout="constrained")
    axis = figure.subplots()
    for line in curves(found):
        style: dict[str, Any] = {
            "color": PALETTE[line.colour][0],
            "alpha": 0.4 if line.faint else 1.0,
        }
        marker = "o" if line.dots else None
        axis.plot(*zip(*line.points, strict=True), label=line.name, marker=marker, **style)
    axis.set_xscale("log")
    axis.set_title(TITLE, fontsize=10)
    axis.set_xlabel("learning rate", fontsize=9)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8)
    return figure


def curves(found: RangeTest) -> list[Line]:
    """Return the losses, the smoothed ones, and a dot at the rate that is suggested."""
    smoothed = found.suggestion.smoothed.tolist()
    # A loss that has diverged would flatten all others.
    low = smoothed.index(min(smoothed))
    top = max(found.losses[: low + 1])
    shown = [(rate, min(loss, top)) for rate, loss in zip(found.rates, found.losses, strict=True)]
    lines = [
        Line("loss", "blue", shown, faint=True),
        Line("smoothed", "blue", list(zip(found.rates, smoothed, strict=True))),
    ]
    rate = found.suggestion.rate
    if rate is not None:
        nearest = min(range(len(found.rates)), key=lambda n: abs(found.rates[n] / rate - 1))
        lines.append(Line("suggested", "orange", [(rate, smoothed[nearest])], dots=True))
    return lines


def described(found: RangeTest) -> str:
    """Return what a test has found, as a sentence."""
    first, last = found.rates[0], found.rates[-1]
    ended = (
        f"it diverges at {found.diverged:.2g}"
        if found.diverged is not None
        else f"it does not diverge up to {last:.2g}"
    )
    rate, steepest = found.suggestion.rate, found.suggestion.steepest
    if rate is None or steepest is None:
        return f"the loss falls at no learning rate from {first:.2g} on; {ended}"
    why = (
        "where the loss falls fastest"
        if rate == steepest
        else f"a tenth of that of divergence; the loss falls fastest at {steepest:.2g}"
    )
    return f"suggested learning rate: {rate:.2g}, {why}; {ended}"
