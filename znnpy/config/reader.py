"""Reads YAML into plain values with the line of every key, and refuses tags, merge keys and other unsafe YAML.

Tags, merge keys, duplicate keys, NaN and infinity, several documents, and aliases that expand to
more than `MOST_VALUES` values are problems. Numbers are YAML 1.2's, so `1e-3` is a number; a whole
number in exponent form (`1e4`) is an int. Everything is built from parser events: no constructor of
the YAML library ever runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from znnpy.config.problems import Key, MalformedConfigError, Place, Problem

# Limits against files made to exhaust memory or time; real configs stay far below each.
MOST_BYTES = 2**20
MOST_VALUES = 6_000  # read in half a second; a network of 1,000 layers has 5,000
MOST_DEPTH = 32  # the builder recurses once a level, and Python's stack is limited
LONGEST_LINE = 20_000  # the YAML scanner takes quadratic time on some endless words

_INT = re.compile(r"[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass
class Document:
    """Plain values, the place of every key, and the problems met so far."""

    file: str
    data: Any = None
    places: dict[Key, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, key: Key) -> Place:
        """Return where a key was written; for a missing key, where its nearest parent was."""
        for length in range(len(key), -1, -1):
            if key[:length] in self.places:
                return self.places[key[:length]]
        return Place(self.file)

    def add(self, key: Key, message: str, place: Place | None = None) -> None:
        """Note a problem."""
        self.problems.append(Problem(place or self.place(key), key, message))


def read_file(path: str | Path) -> Document:
    """Read a YAML file; raises MalformedConfigError when it cannot be read or is not YAML."""
    path = Path(path)
    place = Place(str(path))
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise MalformedConfigError([Problem(place, (), _reason(error, path))]) from None
    if len(raw) > MOST_BYTES:
        raise MalformedConfigError([Problem(place, (), "is larger than 1 MiB; that is no config")])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problem = Problem(Place(str(path), line), (), "is not UTF-8 text; save it as UTF-8")
        raise MalformedConfigError([problem]) from None
    return read_text(text, str(path))


def _reason(error: OSError, path: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        if (path / "config.yaml").is_file():
            return "is a folder; name the config in it, config.yaml"
        return "is a folder; a YAML file is needed"
    return f"cannot be read: {error.strerror}"


def read_text(text: str, file: str) -> Document:
    """Read YAML text that came from `file`; raises MalformedConfigError when it is not YAML."""
    document = Document(file)
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > LONGEST_LINE:
            message = f"a line is longer than {LONGEST_LINE} characters; that is no config"
            raise MalformedConfigError([Problem(Place(file, number), (), message)])
    try:
        _Builder(document, YAML(typ="safe", pure=True).parse(text)).build()
    except MarkedYAMLError as error:
        raise MalformedConfigError([*document.problems, _syntax(error, file)]) from None
    except (YAMLError, ValueError) as error:
        message = f"is not valid YAML: {str(error).splitlines()[0]}"
        raise MalformedConfigError([Problem(Place(file), (), message)]) from None
    return document


def _syntax(error: MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    place = Place(file, mark.line + 1, mark.column + 1) if mark is not None else Place(file)
    what = ", ".join(filter(None, (error.context, error.problem)))
    return Problem(place, (), f"is not valid YAML: {what}")


@dataclass
class _Builder:
    """Builds values from parser events in one pass, with a limit on depth and on expanded values."""

    document: Document
    events: Iterator[Any]
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    values: int = 0

    def build(self) -> None:
        documents = 0
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._fatal(event, "holds several documents (---); one is needed")
                first = next(self.events)
                self.document.places[()] = self._place(first)
                self.document.data = self._value(first, ())

    def _place(self, event: Any) -> Place:
        return Place(self.document.file, event.start_mark.line + 1, event.start_mark.column + 1)

    def _fatal(self, event: Any, message: str, key: Key = ()) -> MalformedConfigError:
        return MalformedConfigError(
            [*self.document.problems, Problem(self._place(event), key, message)]
        )

    def _value(self, event: Any, key: Key) -> Any:
        before = self.values
        self._count(event, 1, key)
        if isinstance(event, AliasEvent):
            return self._alias(event, key)
        if event.tag is not None:
            self.document.add(key, f"tags such as {event.tag} are not allowed", self._place(event))
        value = self._content(event, key)
        if event.anchor:
            self.anchors[event.anchor] = (value, self.values - before)
        return value

    def _count(self, event: Any, values: int, key: Key) -> None:
        self.values += values
        if self.values > MOST_VALUES:
            raise self._fatal(
                event, f"holds more than {MOST_VALUES} values (aliases expanded)", key
            )
        if len(key) > MOST_DEPTH:
            raise self._fatal(event, f"is nested deeper than {MOST_DEPTH} levels", key[:3])

    def _alias(self, event: Any, key: Key) -> Any:
        if event.anchor not in self.anchors:
            raise self._fatal(event, f"*{event.anchor} names no anchor above it", key)
        value, size = self.anchors[event.anchor]
        self._count(event, size, key)
        return deepcopy(value)  # an override of one place must not change the other

    def _content(self, event: Any, key: Key) -> Any:
        if isinstance(event, MappingStartEvent):
            return self._mapping(key)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(key)
        self._refuse_halves(event, key)
        plain = event.style is None
        return self._plain(event, key) if plain else event.value

    def _sequence(self, key: Key) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            here = (*key, len(items))
            self.document.places[here] = self._place(event)
            items.append(self._value(event, here))
        return items

    def _mapping(self, key: Key) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            if not isinstance(event, ScalarEvent):
                raise self._fatal(event, "a key must be plain text", key)
            self._refuse_halves(event, key)
            here, place = (*key, event.value), self._place(event)
            if event.value == "<<" and event.style is None:
                self.document.add(here, "merge keys are not allowed; write the keys out", place)
                self._value(next(self.events), here)
                continue
            if event.tag is not None:
                self.document.add(here, f"tags such as {event.tag} are not allowed", place)
            if event.value in found:
                first = self.document.places[here]
                self.document.add(here, f"is written twice; first in line {first.line}", place)
            self.document.places.setdefault(here, place)
            found[event.value] = self._value(next(self.events), here)
        return found

    def _refuse_halves(self, event: Any, key: Key) -> None:
        """Refuse a lone surrogate, unless it stands for a byte of a file name that is not UTF-8 (surrogateescape)."""
        try:
            event.value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            half = f"\\u{ord(event.value[error.start]):04x}"
            raise self._fatal(event, f"holds half of a character, {half}", key) from None

    def _plain(self, event: Any, key: Key) -> Any:
        try:
            return plain_scalar(event.value)
        except ValueError as error:
            self.document.add(key, f"{error}; found {event.value[:40]}", self._place(event))
            return 0


def plain_scalar(text: str) -> Any:
    """Return the value of an unquoted word; ValueError for NaN, infinity and numbers out of range."""
    if text in _WORDS:
        return _WORDS[text]
    if _NOT_FINITE.fullmatch(text):
        raise ValueError("must be a finite number")
    if _INT.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        return _floating(text)
    return text


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError("is too large a number")
    base = 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10
    return int(text, base)


def _floating(text: str) -> int | float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("must be a finite number")
    whole = "." not in text and "-" not in text[1:] and number.is_integer()
    return int(number) if whole and abs(number) < 2**53 else number
