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


def reason(error: BaseException) -> str:
    """What the system says of a failure, else the error's own words, on one line.

    HDF5 hides the system's words in many of its own.
    """
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    quoted = re.search(r"error message = '([^']+)'", words)
    return quoted[1] if quoted else " ".join(words.split())
