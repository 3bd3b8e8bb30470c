"""Prints scores of evaluations as tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from znnpy.evaluation.scores import Scores
    from znnpy.evaluation.volume import Evaluation


def console() -> Console:
    """Return stdout as a console; wide when it is no terminal, so that lines of tables are not cut."""
    return Console(width=None if sys.stdout.isatty() else 120)


def print_evaluations(evaluations: list[Evaluation]) -> None:
    """Print one table for each volume and output: a row a score, a column a predictor."""
    for evaluation in evaluations:
        table = Table(
            title=f"{evaluation.volume} ({evaluation.output}), loss {evaluation.loss:.4f}",
            title_justify="left",
        )
        table.add_column("")
        for name in evaluation.scores:
            table.add_column(name, justify="right")
        columns = [dict(_numbers(name, it)) for name, it in evaluation.scores.items()]
        for title in dict.fromkeys(title for column in columns for title in column):
            table.add_row(title, *(column.get(title, "") for column in columns))
        console().print(table)


def _numbers(predictor: str, scores: Scores) -> Iterator[tuple[str, str]]:
    """Yield the scores that a predictor has, by title; of several channels one each."""
    from znnpy.metrics.metric import METRICS

    for name, value in scores.found.items():
        metric = METRICS[name]
        several = value if isinstance(value, tuple) else (value,)
        for channel, each in enumerate(several):
            title = metric.title + (f" of channel {channel}" if len(several) > 1 else "")
            if each is not None:
                yield title, f"{each:{metric.format}}"
    if predictor == "network" and scores.threshold is not None:
        yield "probability threshold", f"{scores.threshold:.4f}"  # baselines rank by other numbers
