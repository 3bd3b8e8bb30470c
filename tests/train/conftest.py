"""Pictures of runs are blank, as drawing takes a quarter of a small run: how they look is tests/pictures' to say."""

from __future__ import annotations

from typing import Any

import pytest

from znnpy.pictures import panels

DRAWING = panels.figure_of


def blank(*_: object) -> Any:
    from matplotlib.figure import Figure  # which takes half a second to load

    return Figure((1, 1))


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process and its forks; written as any other."""
    monkeypatch.setattr(panels, "figure_of", blank)


@pytest.fixture
def drawn(undrawn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As users see them."""
    monkeypatch.setattr(panels, "figure_of", DRAWING)
