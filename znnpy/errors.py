"""The exceptions that users see, and how messages are cut and escaped for a terminal."""

import os
import re
import sys
from typing import Any, TextIO


class ZnnpyError(Exception):
    """Base of every error that znnpy raises on purpose; its text is meant for the user."""

    def __reduce__(self) -> Any:
        """Pickle what it holds, not what it was made of: pools of processes wait for ever for what cannot be read."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[ZnnpyError], args: tuple[Any, ...], state: dict[str, Any]) -> ZnnpyError:
    """Return an error as it was pickled."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ArgumentError(ZnnpyError, TypeError):
    """A call names an argument that there is not; the text says where its value goes."""


class ConfigError(ZnnpyError):
    """A config or network file is malformed; the text lists every problem with file, line and key."""


class NetworkError(ZnnpyError):
    """A network is not a valid graph, or its sizes do not fit together."""


class OutputError(NetworkError):
    """What a network has at one output does not suit the loss there; `output` is its name."""

    def __init__(self, text: str, output: str = "") -> None:
        super().__init__(text)
        self.output = output


class ShapeError(ZnnpyError):
    """An array, filter or patch has a shape that does not fit."""


class VolumeError(ZnnpyError):
    """A volume is missing, unsafe, truncated, or not what the config says."""


class WriteError(VolumeError):
    """An output cannot be written: the disk is full, fails, or is no longer there."""


class ChangedError(VolumeError):
    """A file is no longer what it was when it was opened."""


class RunError(ZnnpyError):
    """A run directory or checkpoint cannot be used as asked."""


class PredictionError(RunError):
    """A network predicts values of an image that are not finite: its weights are too large, or the image is unlike."""


class ModelFileError(ZnnpyError):
    """A model of another program is damaged, unsafe, or not one that can be taken over."""


class ExportError(ZnnpyError):
    """A trained network cannot be written in the format that was asked for, or not to that place."""


class PlanError(ZnnpyError):
    """No plan fits: memory limit, algorithm or size refused."""


class TrainingError(ZnnpyError):
    """Training had to stop: the loss or the weights are no longer finite."""


class WaitWarning(RuntimeWarning):
    """This process waits for another one, which its user may not know of."""


def reason(error: BaseException) -> str:
    """Return the system's message for a failure, else the error's own text, on one line.

    HDF5 buries the system's message in a long text of its own.
    """
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    quoted = re.search(r"error message = '([^']+)'", words)
    return quoted[1] if quoted else " ".join(words.split())


def told(error: BaseException) -> str:
    """Return the message that users get for an error; unexpected ones are called internal errors."""
    if usage := getattr(error, "format_message", None):  # typer's, of a wrong command line
        return str(usage())
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_nowhere():
        return "the current folder was removed; change to one that is there"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    if isinstance(error, UnicodeEncodeError) and error.encoding == sys.getfilesystemencoding():
        return (
            f"{error.object}: no file has such a name where the locale has {error.encoding} letters alone; set "
            "LC_ALL=C.UTF-8, or PYTHONUTF8=1"
        )
    if isinstance(error, Exception) and not isinstance(error, ZnnpyError | OSError | MemoryError):
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        return f"internal error ({what}); --verbose shows where; please report it"
    return str(error) or type(error).__name__


def _is_nowhere() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 -- its error alone is wanted
    except FileNotFoundError:
        return True
    return False


MOST_LINES, MOST_LETTERS = 20, 2000  # of a message: what a terminal of 24 lines shows


def printable(text: str) -> str:
    """Return text with every character escaped that would move a terminal's cursor or not be seen."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def screenful(text: str) -> str:
    """Return a message that is printable, and cut where it would fill more than a screen."""
    lines = [printable(line) for line in text.split("\n")]
    shown, room = list[str](), MOST_LETTERS
    for line in lines[:MOST_LINES]:
        if room <= 0:
            break
        shown.append(line if len(line) <= room else f"{line[:room]} ...")
        room -= len(line)
    left = len(lines) - len(shown)
    return "\n".join([*shown, f"... and {left} more lines"] if left else shown)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether somebody may watch a stream as it is written; None: of a process that has no such stream."""
    try:
        return stream is not None and stream.isatty()
    # A program's own stream may know nothing of it, or be closed.
    except (AttributeError, ValueError):
        return False


def refuse_own(error: BaseException) -> None:
    """Raise the error again if it comes from znnpy's kernels, or is a KeyError of its own code.

    For readers of files, which report other errors as damage of the file.
    """
    if type(error).__module__.startswith("znnpy_kernels"):
        raise error
    if not isinstance(error, KeyError):
        return
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    if trace and trace.tb_frame.f_globals.get("__name__", "").startswith("znnpy"):
        raise error
