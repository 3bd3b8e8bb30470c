"""Tables for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from znnpy.evaluation.scores import Deviations, Scores
    from znnpy.evaluation.volume import Evaluation

_TITLES = {
    "voxel_error": "voxel error",
    "average_precision": "average precision",
    "accuracy": "accuracy",
    "adapted_rand_error": "adapted Rand error",
    "voi": "VOI",
    "voi_split": "VOI split",
    "voi_merge": "VOI merge",
    "threshold": "probability threshold",
    "squared_error": "mean squared error",
    "absolute_error": "mean absolute error",
    "correlation": "correlation",
}
_FORMATS = {"squared_error": ".4g", "absolute_error": ".4g"}  # of values of any size


def console() -> Console:
    """Stdout; wide when it is no terminal, so that lines of tables are not cut."""
    return Console(width=None if sys.stdout.isatty() else 120)


def print_evaluations(evaluations: list[Evaluation]) -> None:
    """One table a volume and output: a row a score, a column a predictor."""
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


def _numbers(predictor: str, scores: Scores | Deviations) -> Iterator[tuple[str, str]]:
    """The scores that a predictor has, by title; of several images one each."""
    for name, value in asdict(scores).items():
        if name == "threshold" and predictor != "network":
            continue  # baselines rank voxels by other numbers than probabilities
        several = value if isinstance(value, tuple) else (value,)
        for image, each in enumerate(several):
            title = _TITLES[name] + (f" of channel {image}" if len(several) > 1 else "")
            if each is not None:
                yield title, f"{each:{_FORMATS.get(name, '.4f')}}"
