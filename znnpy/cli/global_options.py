"""Options anywhere in the line (`--verbose`, `--quiet`), and the suggestion of the next command."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from znnpy.data.writing.destination import Destination

VERBOSE = ("--verbose", "-v", "--debug")
QUIET = ("--quiet", "-q")


@dataclass(frozen=True)
class GlobalOptions:
    """`verbose`: errors and warnings show where they come from. `quiet`: no progress, and no next command."""

    verbose: bool = False
    quiet: bool = False

    @classmethod
    def of(cls, words: Sequence[str]) -> Self:
        """Return the global options that a command line asks for."""
        return cls(any(it in VERBOSE for it in words), any(it in QUIET for it in words))


_asked: ContextVar[GlobalOptions] = ContextVar("global_options", default=GlobalOptions())  # noqa: B039 frozen


def global_options() -> GlobalOptions:
    """Return the global options of the running command."""
    return _asked.get()


def adopt(wanted: GlobalOptions) -> None:
    """Set the global options of the command that runs next."""
    _asked.set(wanted)


def without(words: Sequence[str]) -> list[str]:
    """Return a command line without `--verbose` and `--quiet`."""
    return [word for word in words if word not in (*VERBOSE, *QUIET)]


def shown_labels(destination: Destination) -> str:
    """Return how `znnpy view` is told labels: by the usual name of their dataset, else in so many words."""
    return destination.name if destination.dataset else f"labels={destination.name}"


def suggest(*words: object) -> None:
    """Print on stderr which command comes next, such as `znnpy check config.yaml`."""
    if not global_options().quiet:
        with suppress(OSError):  # the terminal may be closed
            print(f"next: znnpy {shlex.join(map(str, words))}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Print a line that users should know of, beside what is asked for."""
    print(f"znnpy: note: {text}", file=sys.stderr, flush=True)
