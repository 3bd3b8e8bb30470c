"""Mutated files of every format end with success or one error for people.

ZNNPY_MUTATIONS sets how many of each; 5000 is the full count.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mutated_kinds import KINDS
from mutations import outcomes

COUNT = int(os.environ.get("ZNNPY_MUTATIONS", "30"))

MENDED = ("log", "versions")  # said and set aside, never refused


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", KINDS)
def test_mutated_files(tmp_path: Path, name: str) -> None:
    found = outcomes(KINDS[name], tmp_path / name, COUNT, seed=COUNT)
    print(f"{name}: {found.good} read, {found.refused} refused, slowest {found.slowest:.2f} s, "
          f"most memory {found.most >> 20} MiB, failures {len(found.failures)}")  # fmt: skip
    assert not found.failures, "\n".join(found.failures[:20])
    assert found.good + found.refused == COUNT
    assert found.refused or name in MENDED
