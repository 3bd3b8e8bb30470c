"""What documents show is run: Python, and the commands that lead from volumes to objects, on small ones; all other
commands are parsed. Tutorials are run when the site is built."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile
import typer
import yaml
from blocks import DOCUMENTS, ROOT, Block, blocks
from called import status_of

from znnpy.cli.app import app
from znnpy.cli.predict import spelled_out
from znnpy.config import load_config

BLOCKS = [block for document in DOCUMENTS for block in blocks(document)]
SKETCH = "text"  # diagrams, and what is said
LANGUAGES = {"python", "shell", "yaml", SKETCH}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
COMMAND: Any = typer.main.get_command(app)
CONFIG = """
network: {layers: [{conv: {channels: 2, size: 3, function: relu}}, {max_filter: 2}, {conv: {channels: 1, size: 1}}]}
data:
  train: [{image: stack.h5:raw, labels: stack.h5:labels}]
  test: [{image: stack.h5:raw, labels: stack.h5:labels}]
training: {iterations: 3, output_shape: 4, conv: direct}
run: {directory: run, threads: 2}
"""
# Documents whose commands are run, from top to bottom, in one folder.
FOLLOWED = {
    "readme": ("README.md",),
    "pages": tuple(f"docs/how-to/{it}.md" for it in ("own-volumes", "predict", "same-bits")),
}
READ = ("prediction.h5", "objects.h5", "*.png")
LEFT = {
    "readme": ("run", *READ),
    "pages": ("run", *READ, "region.h5", "averaged.h5", "report.html", "plan.json"),
}
SMALL = {"0:200,512:1024,512:1024": "0:8,0:12,4:16", "RUN": "run"}
ELSEWHERE = {"volumes/fibsem.yaml", "tls://scheduler:8786"}  # minutes of training, others' clusters


PLUG_IN = {ROOT / "CONTRIBUTING.md", ROOT / "docs/how-to/plug-ins.md"}  # run by tests/contract


def of(language: str) -> Any:
    found = [block for block in BLOCKS if block.language == language]
    if language == "python":
        found = [block for block in found if block.document not in PLUG_IN]
    return pytest.mark.parametrize("block", found, ids=str)


def test_every_block_says_what_it_is() -> None:
    """An indented one is shell; diagrams stand in fences of `text`."""
    assert {block.language for block in BLOCKS} == LANGUAGES
    assert len([block for block in BLOCKS if block.language != SKETCH]) > 20


@of("python")
def test_python_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block.text, str(block), "exec"), {"__name__": "__main__"})


@of("yaml")
def test_yaml_is_part_of_a_config(block: Block, tmp_path: Path) -> None:
    whole = yaml.safe_load(CONFIG)
    for section, keys in yaml.safe_load(block.text).items():
        whole[section] = keys if section == "network" else whole.get(section, {}) | keys
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(whole))
    load_config(tmp_path / "config.yaml")


@of("shell")
def test_commands_are_there(block: Block, pytestconfig: pytest.Config) -> None:
    for program, *words in block.commands:
        known: dict[str, Callable[[list[str]], object]] = {
            "pip": extras_are_there,
            "znnpy": parsed,
            "pytest": pytestconfig._parser.parse,
            "python": lambda words: is_script(words[0]),
        }
        known.get(program, lambda _, program=program: is_script(program))(words)


def extras_are_there(words: list[str]) -> None:
    """Of `pip install ".[mpi]"`."""
    named = re.findall(r"\[(\w+)\]", " ".join(words))
    assert words[0] == "install"
    assert set(named) <= set(EXTRAS)


def parsed(words: list[str]) -> None:
    """By the command itself, types of values too."""
    with COMMAND.make_context("znnpy", spelled_out(words)) as context:
        name, command, rest = COMMAND.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        command.make_context(name, rest, parent=context)


def is_script(name: str) -> None:
    assert (ROOT / name).is_file(), name


@pytest.mark.parametrize("which", FOLLOWED)
def test_commands_can_be_followed(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    volumes()
    Path("config.yaml").write_text(CONFIG)
    for words in followed(FOLLOWED[which]):
        assert status_of(*words) == 0, words
    assert [name for name in LEFT[which] if not [*tmp_path.rglob(name)]] == []


def followed(documents: tuple[str, ...]) -> list[list[str]]:
    """Words of the commands of some documents, with what is large made small."""
    lines = [
        [SMALL.get(word, word) for word in words[1:]]
        for name in documents
        for block in BLOCKS
        if block.document == ROOT / name and block.language == "shell"
        for words in block.commands
        if words[0] == "znnpy" and not ELSEWHERE & set(words)
    ]
    assert len(lines) > 4
    return lines


def volumes() -> None:
    """A stack with labels, as TIFF too, and a mask, in the current folder."""
    rng = np.random.default_rng(0)
    with h5py.File("stack.h5", "w") as file:
        file["raw"] = rng.integers(0, 255, (16, 20, 20), np.uint8)
        file["labels"] = rng.integers(0, 4, (16, 20, 20), np.uint8)
        tifffile.imwrite("stack.tif", file["raw"][:])
    with h5py.File("tissue.h5", "w") as file:
        file["mask"] = np.ones((16, 20, 20), np.uint8)
