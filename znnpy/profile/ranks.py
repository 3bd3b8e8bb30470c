"""Simulated ranks as a table: a row a strategy, a column for each number of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Cells = list[dict[str, Any] | None]


def by_strategy(found: Mapping[str, Any]) -> tuple[list[int], dict[str, Cells]]:
    """(numbers of ranks, cells by strategy) of a summary's `ranks`; None where nothing was simulated."""
    counts = sorted({row["ranks"] for row in found["rows"]})
    rows: dict[str, Cells] = {}
    for row in found["rows"]:
        name = row["strategy"] + (f" {row['colors']}" if row["colors"] > 1 else "")
        cells = rows.setdefault(name, [None] * len(counts))
        cells[counts.index(row["ranks"])] = row
    return counts, rows
