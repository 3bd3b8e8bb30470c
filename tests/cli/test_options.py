"""Values of options that several commands share."""

import pytest
import typer

from znnpy.cli.app import _commands
from znnpy.cli.options import block_sizes


def test_sizes() -> None:
    assert block_sizes(None) is None
    assert block_sizes("48") == block_sizes("48,48,48") == (48, 48, 48)
    assert block_sizes(" 1, 2,3") == (1, 2, 3)


@pytest.mark.parametrize("text", ["", "4,4", "1,2,3,4", "0", "-1", "4x4x4", "²", "9" * 5000, "2.5"])
def test_what_are_no_sizes(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="one size or three"):
        block_sizes(text, "--patch")


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("view", ["a.h5", "--output", "s3://bucket/x"]),
        ("init", ["s3://bucket/c.yaml"]),
        ("check", ["c.yaml", "--save-plan", "file:///p.json"]),
        ("profile", ["c.yaml", "--output", "C:\\out"]),
    ],
)
def test_new_files_are_of_this_machine(command: str, line: list[str]) -> None:
    with pytest.raises(typer.BadParameter, match=r"is a (URL|path of Windows)"):
        _commands().commands[command].make_context(command, line)
