"""Prints scores of evaluations as tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from znnpy.evaluation.volume import Evaluation


def console() -> Console:
    """Return stdout as a console; wide when it is no terminal, so that lines of tables are not cut."""
    return Console(width=None if sys.stdout.isatty() else 120)


def print_evaluations(evaluations: list[Evaluation]) -> None:
    """Print one table for each volume and output: a row a score, a column a predictor."""
    from znnpy.evaluation.score_rows import score_rows

    for evaluation in evaluations:
        table = Table(
            title=f"{evaluation.volume} ({evaluation.output}), loss {evaluation.loss:.4f}",
            title_justify="left",
        )
        table.add_column("")
        for name in evaluation.scores:
            table.add_column(name, justify="right")
        for title, texts in score_rows(evaluation.scores):
            table.add_row(title, *texts)
        console().print(table)
