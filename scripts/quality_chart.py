"""Draw the picture of score over time from the table of docs/design/recipes.md.

    python scripts/quality_chart.py [--output docs/pictures/quality.svg]

A dot is one training (a seed), a line goes through the means; a training's schedule ends where its dot is.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import matplotlib
from document_tables import rows
from matplotlib.figure import Figure

DOCUMENT = Path(__file__).parents[1] / "docs" / "design" / "recipes.md"
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "quality.svg"
TABLE = "**Over time**"
TICKS = {10: "10 s", 40: "40 s", 120: "2 min", 900: "15 min", 3600: "1 h"}
COLORS = {"znnpy": "#2a7f4f", "PyTorch": "#c44e52", "random forest": "#777777"}


@dataclass(frozen=True)
class Trainings:
    """One line of the table: what learned from which volume, for so many seconds, and the score of each seed."""

    volume: str
    who: str
    seconds: float
    scores: tuple[float, ...]


def main() -> None:
    """Read the table, draw a panel for each volume."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=PICTURE)
    draw(DOCUMENT.read_text(), parser.parse_args().output)


def trainings(text: str) -> list[Trainings]:
    """All lines of the table of score over time."""
    return [
        Trainings(
            row["volume"],
            row["by"],
            float(row["seconds"].replace(",", "")),
            tuple(float(score.strip("* ")) for score in row["average precision"].split(",")),
        )
        for row in rows(text, TABLE)
    ]


def described(text: str) -> str:
    """What the picture shows, in words: kept in its file, by which a test knows whether it is of these figures."""
    return "; ".join(
        f"{it.volume}, {it.who}, {it.seconds:g} s: {', '.join(f'{score:.3f}' for score in it.scores)}"
        for it in trainings(text)
    )


def draw(text: str, output: Path) -> None:
    """Write the picture as SVG, the same bytes each time."""
    matplotlib.rcParams.update({"svg.hashsalt": "znnpy", "font.size": 9})
    found = trainings(text)
    volumes = list(dict.fromkeys(it.volume for it in found))
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for axis, volume in zip(figure.subplots(1, len(volumes)), volumes, strict=True):
        for who, color in COLORS.items():
            own = sorted(
                (it for it in found if (it.volume, it.who) == (volume, who)),
                key=lambda it: it.seconds,
            )
            if not own:
                continue
            axis.plot(
                [it.seconds for it in own],
                [mean(it.scores) for it in own],
                color=color,
                label=who,
                marker="D" if len(own) == 1 else "o",
                markersize=6 if len(own) == 1 else 4,
                linewidth=1.8,
            )
            dots = [(it.seconds, score) for it in own for score in it.scores]
            axis.scatter(*zip(*dots, strict=True), 14, color=color, alpha=0.6, linewidths=0)
        axis.set_xscale("log")
        longest = max(it.seconds for it in found if it.volume == volume)
        shown = {at: label for at, label in TICKS.items() if at <= longest}
        axis.set_xticks(list(shown), list(shown.values()))
        axis.minorticks_off()
        axis.set_xlim(8, 1.3 * longest)
        axis.set_title(volume.replace("`", ""))
        axis.set_xlabel("time of training on two cores")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#e4e4e4", linewidth=0.6)
        axis.legend(frameon=False, loc="lower right")
    figure.axes[0].set_ylabel("average precision of membranes")
    figure.savefig(output, metadata={"Date": None, "Description": described(text)})


if __name__ == "__main__":
    main()
