"""What shows training when nobody can be shown anything."""

import errno
import io

import pytest
from rich.console import Console

from znnpy.train.progress import Bar, Plain, Status


class Gone(io.StringIO):
    """A terminal that is closed, or a full disk."""

    def write(self, _text):
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(("error", "words"), [(0.25, "  error 0.2500"), (None, "")])
def test_an_error_is_shown_where_there_is_one(error, words):
    plain, bar = io.StringIO(), io.StringIO()
    for reporter in (
        Plain(plain),
        Bar(Console(file=bar, force_terminal=True, width=200, no_color=True)),
    ):
        reporter.start(1, 0)
        reporter.update(Status(1, 0.5, error, 1.0, 100.0))
        reporter.close()
    assert f"loss 0.5000{words}  1.0" in plain.getvalue()
    assert f"loss 0.5000{words} 1.0" in bar.getvalue()


@pytest.mark.parametrize(
    "reporter", [Plain(Gone()), Bar(Console(file=Gone(), force_terminal=True))]
)
def test_training_goes_on_where_nothing_can_be_shown(reporter):
    reporter.preparing("kernels", 1, 2)
    reporter.preparing("kernels", 2, 2)
    reporter.start(2, 0)
    reporter.update(Status(2, 0.5, 0.1, 1.0, 100.0))
    reporter.note("validation")
    reporter.close()
