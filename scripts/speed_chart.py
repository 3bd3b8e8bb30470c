"""Draw the chart of README.md from the tables of docs/performance.md.

    python scripts/speed_chart.py [--output docs/pictures/speed.svg]

Bars are the peers' times by znnpy's, lines the least and most of the rounds: the U-Nets on 2 threads of the Zen 4.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from document_tables import rows
from matplotlib.figure import Figure

DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"
THREADS = "2"
RATIO = re.compile(r"([\d.]+) \(([\d.]+)-([\d.]+)\)")
COLORS = {
    "PyTorch": "#c44e52",
    "PyTorch, compiled": "#e09a6b",
    "ONNX Runtime": "#8172b2",
    "OpenVINO": "#64a0c8",
}


@dataclass(frozen=True)
class Table:
    """One table of the document: what it is of, the sentence that it follows, and its columns by peer."""

    title: str
    after: str
    columns: dict[str, str]


TABLES = (
    Table(
        "one training update",
        "One update on the Zen 4",
        {"PyTorch": "PyTorch, eager", "PyTorch, compiled": "compiled"},
    ),
    Table(
        "one prediction",
        "One forward pass on the Zen 4",
        {
            "PyTorch": "PyTorch",
            "PyTorch, compiled": "compiled",
            "ONNX Runtime": "ONNX Runtime",
            "OpenVINO": "OpenVINO",
        },
    ),
)


def main() -> None:
    """Read both tables, draw them side by side."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=DOCUMENT.parent / "pictures" / "speed.svg")
    draw(DOCUMENT.read_text(), parser.parse_args().output)


def on_two_threads(text: str, after: str) -> list[dict[str, str]]:
    """The lines of a table that are of two threads."""
    return [row for row in rows(text, after) if row["threads"] == THREADS]


def ratio(cell: str) -> tuple[float, float, float]:
    """Median, least and most of a cell such as `4.25 (3.52-4.53)`."""
    found = RATIO.match(cell)
    if not found:
        raise SystemExit(f"{DOCUMENT.name}: {cell!r} is no ratio with its range")
    middle, least, most = map(float, found.groups())
    return middle, least, most


def described(text: str) -> str:
    """What the chart shows, in words: kept in its file, by which a test knows whether it is of these figures."""
    return "; ".join(
        f"{table.title}, {row['net']}: {peer} {row[column]}"
        for table in TABLES
        for row in on_two_threads(text, table.after)
        for peer, column in table.columns.items()
    )


def draw(text: str, output: Path) -> None:
    """Write the chart as SVG, the same bytes each time."""
    matplotlib.rcParams.update({"svg.hashsalt": "znnpy", "font.size": 9})
    figure = Figure(figsize=(9, 4), layout="constrained")
    widths = [len(table.columns) + 1.5 for table in TABLES]
    axes = figure.subplots(1, len(TABLES), sharey=True, width_ratios=widths)
    for axis, table in zip(axes, TABLES, strict=True):
        found = on_two_threads(text, table.after)
        for place, (peer, column) in enumerate(table.columns.items()):
            ratios = [ratio(row[column]) for row in found]
            middle = [ratio[0] for ratio in ratios]
            reach = [[m - low for m, low, _ in ratios], [high - m for m, _, high in ratios]]
            width = 0.8 / len(table.columns)
            x = [i - 0.4 + (place + 0.5) * width for i in range(len(found))]
            axis.bar(x, middle, width * 0.92, color=COLORS[peer], label=peer)
            axis.errorbar(x, middle, reach, fmt="none", ecolor="#333333", elinewidth=0.8)
        axis.axhline(1, color="#2a7f4f", linewidth=1.5)
        axis.text(
            -0.48,
            1.06,
            "znnpy",
            color="#2a7f4f",
            fontweight="bold",
            va="bottom",
            bbox={"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1},
        )
        axis.set_title(table.title)
        axis.set_xticks(
            range(len(found)),
            [row["net"].replace(", ", "\n", 1).replace("^3", "³") for row in found],
        )
        axis.tick_params(axis="x", length=0, labelsize=7.5)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlim(-0.5, len(found) - 0.5)
    axes[0].set_ylabel("time, as a multiple of znnpy's")
    axes[-1].legend(frameon=False, fontsize=8, ncols=2, loc="upper right")
    axes[0].set_ylim(0, 11)
    figure.savefig(output, metadata={"Date": None, "Description": described(text)})


if __name__ == "__main__":
    main()
