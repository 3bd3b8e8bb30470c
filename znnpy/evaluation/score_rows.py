"""The scores of an evaluation as rows of text, for tables: a row a score, a column a predictor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from znnpy.evaluation.scores import Scores
from znnpy.metrics.metric import METRICS


def score_rows(scores: Mapping[str, Scores]) -> Iterator[tuple[str, list[str]]]:
    """Yield the title of each score that any predictor has, and its text by predictor, empty where one has none."""
    columns = [dict(_numbers(name, it)) for name, it in scores.items()]
    for title in dict.fromkeys(title for column in columns for title in column):
        yield title, [column.get(title, "") for column in columns]


def _numbers(predictor: str, scores: Scores) -> Iterator[tuple[str, str]]:
    """Yield the scores that a predictor has, by title; of several channels one each."""
    for name, value in scores.found.items():
        metric = METRICS[name]
        several = value if isinstance(value, tuple) else (value,)
        what, first = ("class", scores.first) if metric.of == "classes" else ("channel", 0)
        for number, each in enumerate(several, first):
            title = metric.title + (f" of {what} {number}" if len(several) > 1 else "")
            if each is not None:
                yield title, f"{each:{metric.format}}"
    if predictor == "network" and scores.threshold is not None:
        yield "probability threshold", f"{scores.threshold:.4f}"  # baselines rank by other numbers
