"""Entry point of the `znnpy` command: handles Ctrl-C during imports, then runs `app.main`."""

import _signal  # type: ignore[import-not-found]  # of Python itself, as os and sys; `signal` would have to be loaded
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

__all__ = ["main"]

_SHOW_CURSOR = b"\x1b[?25h"


def main(arguments: "Sequence[str] | None" = None) -> None:
    """Run the command line, by default the process's own, and end the process.

    Ctrl-C ends it at once, with one line, unless a command arranges better: most of the first second
    goes into imports, which an exception would leave with a traceback. So nothing is imported before it
    that Python has not loaded by itself.
    """
    _stand_in()
    if arguments is None:
        _signal.signal(_signal.SIGINT, _interrupted)
    from znnpy.cli.module_loading import loading

    with loading():
        from znnpy.cli.app import main as run
    run(arguments)


def _stand_in() -> None:
    """Have streams that were closed before the start lead nowhere, before a run's files take their numbers."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: the stream's own
            os.set_inheritable(number, True)  # as compilers in other processes inherit them
            setattr(sys, name, open(number, "r" if name == "stdin" else "w"))  # noqa: PTH123, SIM115


def _interrupted(number: int, _frame: "FrameType | None") -> None:
    os.write(2, (_SHOW_CURSOR if sys.stderr.isatty() else b"") + b"znnpy: stopped by SIGINT\n")
    os._exit(128 + number)
