"""Messages are printable and no longer than a screen, and errors come whole out of other processes."""

import copy
import pickle

import pytest

from znnpy.config import MalformedConfigError, config_from
from znnpy.engine.memory.limits import TooLargeError
from znnpy.errors import MOST_LETTERS, MOST_LINES, OutputError, ZnnpyError, printable, screenful


def test_errors_that_hold_more_than_their_text() -> None:
    with pytest.raises(MalformedConfigError) as found:
        config_from({"network": {}, "training": {"batch": 0}})
    errors: list[ZnnpyError] = [
        found.value, TooLargeError("it needs 2 bytes;", "1 byte"), OutputError("wrong", "out"), ZnnpyError("one")
    ]  # fmt: skip
    for error in errors:
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(again) is type(error)
            assert (str(again), vars(again)) == (str(error), vars(error))


def test_control_characters_are_escaped() -> None:
    assert printable("a\x1b[2Jb\r\n\x07") == r"a\x1b[2Jb\r\n\x07"
    assert printable("\u202egnp.exe \udcff") == r"\u202egnp.exe \udcff"
    assert printable("Mäuse 鼠 µm") == "Mäuse 鼠 µm"


def test_a_screenful() -> None:
    assert screenful("one\ntwo \x1b") == "one\ntwo \\x1b"
    many = screenful("\n".join(f"problem {n}" for n in range(500)))
    assert len(many.splitlines()) == MOST_LINES + 1 < 24
    assert many.endswith(f"... and {500 - MOST_LINES} more lines")
    assert len(screenful("x" * 10**6)) < MOST_LETTERS + 10 < 24 * 120
    assert len(screenful("\n".join(["x" * 900] * 50))) < 1.2 * MOST_LETTERS
