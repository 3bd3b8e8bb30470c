"""The picture of score over time shows the figures of docs/design/recipes.md."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from blocks import ROOT

TEXT = (ROOT / "docs" / "design" / "recipes.md").read_text()


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])


def test_it_is_of_the_figures_in_the_document() -> None:
    """If not: python scripts/quality_chart.py."""
    from quality_chart import described

    chart = ElementTree.parse(ROOT / "docs" / "pictures" / "quality.svg")
    kept = [it.text for it in chart.iter() if it.tag.endswith("description")]
    assert kept == [described(TEXT)]


def test_means_are_those_of_the_seeds() -> None:
    from document_tables import rows
    from quality_chart import TABLE, trainings

    for row, found in zip(rows(TEXT, TABLE), trainings(TEXT), strict=True):
        assert abs(float(row["mean"].strip("*")) - sum(found.scores) / len(found.scores)) <= 0.001


def test_it_can_be_drawn(tmp_path: Path) -> None:
    from quality_chart import draw

    draw(TEXT, tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").stat().st_size > 10_000
