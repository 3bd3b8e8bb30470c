"""Lets the tests of every room import the helpers that stand beside this file; all concern the width of vectors."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark those of this room, before pytest chooses by marks."""
    # By their text: to compare the paths of so many items takes longer.
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.lanes)
