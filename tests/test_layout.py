"""Files of tests stand alone: what several need is a helper, whose name says what it holds."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("*.py"))
# In scripts that tests write for other processes, too.
IMPORTED = re.compile(r"^\s*(?:from|import)\s+(test_\w+)", re.MULTILINE)


def test_no_file_imports_tests() -> None:
    found = {str(file.relative_to(HERE)): IMPORTED.findall(file.read_text()) for file in FILES}
    assert not any(found.values()), {file: names for file, names in found.items() if names}


def test_no_two_files_have_the_same_name() -> None:
    """Helpers of all folders are imported by their bare names."""
    names = [file.name for file in FILES if file.name != "conftest.py"]
    assert sorted(set(names)) == sorted(names)


def test_scipy_is_imported_where_it_is_used() -> None:
    """Its parts take a third of a second of each command that starts, and most commands use none."""
    found = []
    for file in sorted((HERE.parent / "znnpy").rglob("*.py")):
        for line in ast.parse(file.read_text()).body:
            names = [line.module or ""] if isinstance(line, ast.ImportFrom) else []
            names += [it.name for it in line.names] if isinstance(line, ast.Import) else []
            found += [(file.name, name) for name in names if name.partition(".")[0] == "scipy"]
    assert not found


def test_all_algorithms_of_convolution_are_kept_apart() -> None:
    contracts = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["tool"]["importlinter"]
    (apart,) = (it for it in contracts["contracts"] if it["type"] == "independence")
    folder = HERE.parent / "znnpy" / "engine" / "convolution"
    there = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert apart["modules"] == [f"znnpy.engine.convolution.{name}" for name in sorted(there)]
