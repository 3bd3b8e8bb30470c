"""What the package asks of others: every requirement says the lowest version that it was tested with."""

from __future__ import annotations

import tomllib
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_requirement_has_a_lower_bound() -> None:
    """`scripts/bounds_check` installs the lowest: without a bound that would be any version ever."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    asked = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
    asked += [one for extra in extras for one in extra if not one.startswith("znnpy[")]
    assert len(asked) > 20
    assert [one for one in asked if ">=" not in one.partition(";")[0]] == []


def test_a_busy_machine_fails_no_example() -> None:
    assert settings().deadline is None
    scattered = [path for path in (ROOT / "tests").rglob("*.py") if "deadline=" in path.read_text()]
    assert set(scattered) == {ROOT / "tests" / "conftest.py", Path(__file__)}
