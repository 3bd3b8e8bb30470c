"""What shows training when nobody can be shown anything."""

import errno
import io
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from znnpy.errors import is_terminal
from znnpy.infer.blocks_bar import BlocksBar
from znnpy.train import progress
from znnpy.train.progress import Plain, Rate, Smooth, Status, choose_reporter
from znnpy.train.progress_bar import Bar


class Gone(io.StringIO):
    """A terminal that is closed, or a full disk."""

    def write(self, _text):
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(("error", "words"), [(0.25, "  voxel error 0.2500"), (None, "")])
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


@pytest.mark.parametrize("stream", [None, object(), io.StringIO()])
def test_nobody_watches_what_is_no_terminal(stream, monkeypatch):
    if isinstance(stream, io.StringIO):
        stream.close()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", stream)
    assert not is_terminal(stream)
    assert isinstance(choose_reporter(), Plain)
    with BlocksBar("predicting", quiet=True) as bar:
        bar.prepare("kernels", 1, 2)


@pytest.fixture
def clock(monkeypatch):
    """A second passes when it is told to."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def test_lines_come_every_few_seconds_and_in_the_end(clock):
    said = io.StringIO()
    plain = Plain(said)
    plain.start(23, 0)
    for iteration in range(1, 24):
        plain.update(Status(iteration, 0.5, None, 2.0, 100.0))
        clock.seconds += 1
    found = [line.split()[1] for line in said.getvalue().splitlines()]
    assert found == ["1/23", "6/23", "11/23", "16/23", "21/23", "23/23"]
    assert "ETA 0:11" in said.getvalue().splitlines()[0]


def test_what_is_shown_is_the_mean_of_the_last_updates():
    smooth = Smooth()
    for iteration in range(1, 1001):
        smooth.add(Status(iteration, 3.0, 0.5, 1.0, 1.0))
    for iteration in range(1001, 1051):
        loss, error = smooth.add(Status(iteration, 1.0, 0.0, 1.0, 1.0))
    left = 0.98**50
    assert loss == pytest.approx(1 + 2 * left)
    assert error == pytest.approx(0.5 * left)


def test_the_rate_is_that_of_the_last_seconds(clock):
    rate = Rate()
    for seconds in [1.0] * 30 + [0.5] * 60:
        clock.seconds += seconds
        found = rate.add()
    assert found == pytest.approx(2.0, rel=0.06)
