"""Tables for people."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from znnpy.infer.evaluate import Evaluation

_TITLES = {
    "voxel_error": "voxel error",
    "average_precision": "average precision",
    "accuracy": "accuracy",
    "adapted_rand_error": "adapted Rand error",
    "voi": "VOI",
    "voi_split": "VOI split",
    "voi_merge": "VOI merge",
    "threshold": "probability threshold",
}


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
        for field in fields(next(iter(evaluation.scores.values()))):
            values = [
                None
                if field.name == "threshold" and name != "network"
                else getattr(scores, field.name)
                for name, scores in evaluation.scores.items()
            ]  # baselines rank voxels by other numbers than probabilities
            if any(value is not None for value in values):
                table.add_row(
                    _TITLES[field.name], *("" if v is None else f"{v:.4f}" for v in values)
                )
        console().print(table)
