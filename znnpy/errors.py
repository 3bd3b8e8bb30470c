"""The errors users see: what was wrong, where, and what would be right."""

import re


class ZnnpyError(Exception):
    """Base of every error that znnpy raises on purpose; its text is meant for the user."""


class ConfigError(ZnnpyError):
    """A config or network file is malformed; the text lists every problem with file, line and key."""


class NetworkError(ZnnpyError):
    """A network is not a valid graph, or its sizes do not fit together."""


class ShapeError(ZnnpyError):
    """An array, filter or patch has a shape that does not fit."""


class VolumeError(ZnnpyError):
    """A volume is missing, unsafe, truncated, or not what the config says."""


class ChangedError(VolumeError):
    """A file is no longer what it was when it was opened."""


class RunError(ZnnpyError):
    """A run directory or checkpoint cannot be used as asked."""


class PlanError(ZnnpyError):
    """No plan fits: memory limit, algorithm or size refused."""


class TrainingError(ZnnpyError):
    """Training had to stop: loss or weights are no longer finite."""


class WaitWarning(RuntimeWarning):
    """This process waits for another, which nobody else may know of."""


def reason(error: BaseException) -> str:
    """What the system says of a failure, else the error's own words, on one line.

    HDF5 hides the system's words in many of its own.
    """
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    quoted = re.search(r"error message = '([^']+)'", words)
    return quoted[1] if quoted else " ".join(words.split())


def told(error: BaseException) -> str:
    """What users are told of an error: its own words; of one that nobody expected, that it is internal."""
    if usage := getattr(error, "format_message", None):  # typer's, of a wrong command line
        return str(usage())
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    if isinstance(error, Exception) and not isinstance(error, ZnnpyError | OSError | MemoryError):
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        return f"internal error ({what}); --debug shows where; please report it"
    return str(error) or type(error).__name__


MOST_LINES, MOST_LETTERS = 20, 2000  # of a message


def printable(text: str) -> str:
    """Text that a terminal shows as it is: what would move its cursor or hide in it is escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def screenful(text: str) -> str:
    """A message of some lines, printable, cut where it would fill more than a screen."""
    lines = [printable(line) for line in text.split("\n")]
    shown, room = list[str](), MOST_LETTERS
    for line in lines[:MOST_LINES]:
        if room <= 0:
            break
        shown.append(line if len(line) <= room else f"{line[:room]} ...")
        room -= len(line)
    left = len(lines) - len(shown)
    return "\n".join([*shown, f"... and {left} more lines"] if left else shown)


def refuse_own(error: BaseException) -> None:
    """Raise as they are errors of znnpy's kernels, and a KeyError of its own code: no file is damaged by these."""
    if type(error).__module__.startswith("znnpy_kernels"):
        raise error
    if not isinstance(error, KeyError):
        return
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    if trace and trace.tb_frame.f_globals.get("__name__", "").startswith("znnpy"):
        raise error
