"""Messages are printable and no longer than a screen."""

from znnpy.errors import MOST_LETTERS, MOST_LINES, printable, screenful


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
