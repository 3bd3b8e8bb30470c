"""What the package asks of others: every requirement says the lowest version that it was tested with."""

from __future__ import annotations

import tomllib
from pathlib import Path

from hypothesis import settings
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_requirement_has_a_lower_bound() -> None:
    """`scripts/bounds_check` installs the lowest: without a bound that would be any version ever."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    asked = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
    asked += [one for extra in extras for one in extra if not one.startswith("znnpy[")]
    assert len(asked) > 20
    assert [one for one in asked if ">=" not in one.partition(";")[0]] == []


def test_what_has_no_wheel_for_arm_is_not_asked_for_there() -> None:
    """`pip install ".[test]"` works there without a compiler; mutex watersheds alone are not tested."""
    asked = [Requirement(one) for one in PROJECT["project"]["optional-dependencies"]["test"]]
    (mutex,) = [one for one in asked if one.extras == {"mutex"}]
    assert mutex.marker
    assert mutex.marker.evaluate({"platform_machine": "x86_64"})
    assert not mutex.marker.evaluate({"platform_machine": "aarch64"})


def test_a_busy_machine_fails_no_example() -> None:
    assert settings().deadline is None
    scattered = [path for path in (ROOT / "tests").rglob("*.py") if "deadline=" in path.read_text()]
    assert set(scattered) == {ROOT / "tests" / "shares.py", Path(__file__)}


def test_the_gate_runs_anywhere() -> None:
    """By the machine's own settings: no registry of ours, nothing for root alone, no experimental output of pip."""
    text = (ROOT / ".ci" / "run").read_text()
    assert "://" not in text
    for word in ("index-url", "apt-get", "sudo", "pip index", "id -u"):
        assert word not in text, word
