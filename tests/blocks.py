"""Blocks of the documents: Python, YAML and shell that readers may try, and sketches, which nobody runs.

Cells of tutorials are none of them: the build of the site runs them (`scripts/docs`), in their order.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(path for room in ("docs", "znnpy", "volumes") for path in (ROOT / room).rglob("*.md")),
]
FENCED = re.compile(r"^```([\w{}-]*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DIRECTIVE = "{"  # of the site: a fence of {toctree}, {code-cell} ...
ENDS = frozenset("&;|")
INDENTED = re.compile(r"(?<=\n\n)(?:    .*\n)+")


@dataclass
class Block:
    """Lines of a document, and what they are written in: what a fence says, `shell` where they are indented."""

    document: Path
    number: int
    language: str
    lines: list[str]

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.number}"

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def commands(self) -> list[list[str]]:
        """Words of a shell block's commands in their order, without comments and what runs them on several ranks."""
        words = [word for line in self.lines for word in (*_words(line), ";")]
        found = [list(group) for ends, group in groupby(words, ENDS.issuperset) if not ends]
        return [_launched(words) for words in found]


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&;|")
    lexer.whitespace_split = True
    return list(lexer)


def _launched(words: list[str]) -> list[str]:
    return words[words.index("znnpy") :] if re.match("mpi|srun", words[0]) else words


def blocks(document: Path) -> Iterator[Block]:
    """All of a document; those in fences come first."""
    text = document.read_text()
    for found in FENCED.finditer(text):
        if found[1][:1] == DIRECTIVE:
            continue
        yield Block(document, _line(text, found), found[1] or "nothing", found[2].splitlines())
    rest = FENCED.sub(lambda found: "\n" * found[0].count("\n"), text)
    for found in INDENTED.finditer(rest):
        lines = [line.removeprefix("    ") for line in found[0].splitlines()]
        yield Block(document, _line(rest, found), "shell", lines)


def _line(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start()) + 1
