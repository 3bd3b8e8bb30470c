"""The conda recipe asks for what pyproject.toml asks for."""

from __future__ import annotations

import tomllib
from typing import Any

import yaml
from blocks import ROOT
from packaging.requirements import Requirement

CONDA = {"matplotlib": "matplotlib-base"}  # names that differ; that one brings no Qt
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
RECIPE: dict[str, Any] = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())


def spelled(requirement: str) -> str:
    found = Requirement(requirement)
    return f"{CONDA.get(found.name, found.name)} {found.specifier}"


def test_it_is_the_same_version() -> None:
    assert RECIPE["context"]["version"] == PROJECT["project"]["version"]


def test_it_runs_with_the_same() -> None:
    wanted = {f"python {PROJECT['project']['requires-python']}", "__linux"}
    assert set(RECIPE["requirements"]["run"]) == wanted | {
        spelled(it) for it in PROJECT["project"]["dependencies"]
    }


def test_it_builds_with_the_same() -> None:
    wanted = {spelled(it) for it in PROJECT["build-system"]["requires"]}
    assert set(RECIPE["requirements"]["host"]) == wanted | {"python 3.11.*", "pip"}
