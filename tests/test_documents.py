"""What documents name is there: files, links, and options of the commands that they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from blocks import DOCUMENTS, ROOT

from znnpy.cli.app import app

FILES = [
    str(path.relative_to(ROOT))
    for room in ("docs", "kernels", "recipe", "scripts", "tests", "volumes", "znnpy")
    for path in (ROOT / room).rglob("*")
]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
OPTION = re.compile(r"(?<!\S)--[a-z][a-z0-9-]*")
documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda it: str(it.relative_to(ROOT)))


def quoted(text: str) -> list[str]:
    """Words and commands within backticks, and indented lines without what follows a hash."""
    lines = re.findall(r"^    (.*)$", text, re.MULTILINE)
    return re.findall(r"`([^`\n]+)`", text) + [line.partition(" #")[0] for line in lines]


def test_there_are_documents() -> None:
    assert len(DOCUMENTS) > 20


@documents
def test_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@documents
def test_files_are_there(document: Path) -> None:
    """Paths count from any folder, such as `train/session.py`."""
    named = [
        path
        for words in quoted(document.read_text())
        for path in re.findall(r"(?<![\w*/.-])(?:\w+/)+\w+\.(?:py|yaml|md|c)\b", words)
    ]
    ends = tuple(FILES)
    assert [path for path in named if not any(f"/{it}".endswith(f"/{path}") for it in ends)] == []


@documents
def test_rooms_are_there(document: Path) -> None:
    paths = re.findall(
        r"(?<![/\w])((?:tests|scripts|docs|kernels)/[\w/.-]*\w)", document.read_text()
    )
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_changes_go_into_files_that_are_there() -> None:
    """Of the table, kernels count from their own package, tests from here; other paths from znnpy/."""
    rows = [
        line for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if line[:2] == "| "
    ]
    named = [
        ROOT
        / ("kernels/znnpy_kernels" if kernels else "" if path[:6] == "tests/" else "znnpy")
        / path
        for row in rows
        for kernels, path in re.findall(r"(kernels )?`([\w/]+(?:/|\.py))`", row)
    ]
    assert len(named) > 15
    assert [path for path in named if not path.exists()] == []


@documents
def test_options_are_the_commands(document: Path) -> None:
    for words in quoted(document.read_text()):
        for name, rest in re.findall(r"\bznnpy ([a-z]+)\b(.*)", words):
            if name in COMMANDS:
                known = {option for it in COMMANDS[name].params for option in it.opts}
                assert set(OPTION.findall(rest)) <= known | {"--help"}, words


@documents
def test_options_are_the_scripts(document: Path) -> None:
    for words in quoted(document.read_text()):
        for script, rest in re.findall(r"\b(scripts/\w+(?:\.py)?)(.*)", words):
            assert (ROOT / script).exists(), words
            if (ROOT / script).is_file():
                text = (ROOT / script).read_text()
                assert [it for it in OPTION.findall(rest) if it not in text] == [], words
