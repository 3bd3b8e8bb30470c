"""Progress in a notebook: drawn in one place; elsewhere as ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_run import write_config

from znnpy.interactive.progress import NotebookBar, bar, in_notebook, reporter_here
from znnpy.train.progress import Notes, Plain

CELLS = (
    "import znnpy",
    "run = znnpy.train('config.yaml', overrides=['training.iterations=30', 'run.threads=1'])",
    "run.predict('data.h5:raw')",
    "run.evaluate()",
)


def test_elsewhere_progress_is_as_ever() -> None:
    assert not in_notebook()
    assert isinstance(reporter_here(quiet=False), Plain)
    assert isinstance(reporter_here(quiet=True), Notes)


def test_a_bar_is_no_wider_than_whole_and_escapes_its_words() -> None:
    assert 'value="100.0"' in bar(7, "x")
    assert 'value="0.0"' in bar(-1, "x")
    assert "<b>" not in bar(0.5, "<b>")


def test_a_bar_that_was_never_started_closes() -> None:
    NotebookBar().close()


@pytest.mark.slow
def test_a_notebook_shows_bars_tables_and_pictures(tmp_path: Path) -> None:
    """By a kernel of its own, as Jupyter runs one."""
    client: Any = pytest.importorskip("nbclient")
    import nbformat  # comes with it

    write_config(tmp_path)
    cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    client.NotebookClient(book, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    _, trained, predicted, evaluated = (cell.outputs for cell in book.cells)
    html = [it["data"].get("text/html", "") for it in trained if "data" in it]
    assert sum("30 of 30" in it for it in html) == 1  # in one place, not line by line
    assert 'value="100.0"' in "".join(html)
    assert any("blocks" in it["data"].get("text/html", "") for it in predicted if "data" in it)
    shown = "".join(it["data"].get("text/html", "") for it in evaluated if "data" in it)
    assert "<table>" in shown
    assert "data:image/png" in shown
