"""Pictures of runs are blank, as drawing takes a quarter of a small run: how they look is tests/pictures' to say.

For the `conftest.py` of rooms whose tests train or predict by commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from znnpy.pictures import panels

DRAWING = panels.figure_of


def blank(*_: object) -> Any:
    from matplotlib.figure import Figure  # which takes half a second to load

    return Figure((1, 1))


# Of a module, so that runs which its tests share are as quick.
@pytest.fixture(autouse=True, scope="module")
def undrawn() -> Iterator[None]:
    """In this process and its forks; written as any other."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(panels, "figure_of", blank)
        yield


@pytest.fixture
def drawn(undrawn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As users see them."""
    monkeypatch.setattr(panels, "figure_of", DRAWING)
