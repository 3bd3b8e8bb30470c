"""The chart of README.md shows the figures of docs/performance.md."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from blocks import ROOT

TEXT = (ROOT / "docs" / "performance.md").read_text()


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])


def test_it_is_of_the_figures_in_the_document() -> None:
    """If not: python scripts/speed_chart.py."""
    from speed_chart import described

    chart = ElementTree.parse(ROOT / "docs" / "pictures" / "speed.svg")
    kept = [it.text for it in chart.iter() if it.tag.endswith("description")]
    assert kept == [described(TEXT)]


def test_tables_are_read() -> None:
    from speed_chart import TABLES, on_two_threads, ratio

    update, forward = (on_two_threads(TEXT, table.after) for table in TABLES)
    assert len(update) == len(forward) == 4
    assert ratio(forward[0]["OpenVINO"]) == (2.47, 1.86, 2.68)
    # Of two columns `compiled`, ratios come first.
    assert ratio(update[0]["compiled"]) == (5.39, 4.46, 5.40)


def test_it_can_be_drawn(tmp_path: Path) -> None:
    from speed_chart import draw

    draw(TEXT, tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").stat().st_size > 10_000
