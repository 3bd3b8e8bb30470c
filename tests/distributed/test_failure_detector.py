"""Rank 0 says why all end, however late it comes to do so."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from znnpy.distributed import failure_detector
from znnpy.distributed.errors import DistributedError
from znnpy.distributed.failure_detector import Watch


class Ending:
    """Rank 0 of two, its communication thread and its clock: what is due is done when it is told so."""

    rank, size = 0, 2

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messenger, self.done = self, list[str]()
        self.due: list[Callable[[], object]] = []
        self.raised: list[Exception] = []
        monkeypatch.setattr(failure_detector, "say", lambda words, **_: self.done.append(words))
        monkeypatch.setattr(failure_detector, "leave", lambda status: self.done.append("left"))
        later = SimpleNamespace(after=lambda seconds, what: self.due.append(what))
        monkeypatch.setattr(failure_detector, "Later", lambda: later)
        self.watch = Watch(self)  # type: ignore[arg-type]
        self.watch._hear(1, b"1 a.h5 is damaged")

    def tell(self, *_: object) -> None:
        """The other one hears it."""

    def call(self, word: Callable[[], None]) -> None:
        """At once."""
        word()

    def fail(self, error: Exception) -> None:
        """What is raised where it waits for the other."""
        self.raised.append(error)

    def time_passes(self) -> None:
        """Until all that is due now is done."""
        due, self.due = self.due, []
        for what in due:
            what()


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Ending:
    return Ending(monkeypatch)


def test_who_waits_for_nobody_is_left_with_the_word(ending: Ending) -> None:
    ending.time_passes()
    assert ending.done == ["rank 1: a.h5 is damaged", "left"]


def test_who_has_just_begun_to_report_has_time_to(ending: Ending) -> None:
    """It may have been busy until then."""
    (error,) = ending.raised
    ending.watch.end(error, 1)
    ending.time_passes()
    assert ending.done == []
    ending.time_passes()
    assert ending.done == ["left"]


def test_who_waits_for_others_and_makes_something_else_of_it_is_left_with_the_word(
    ending: Ending,
) -> None:
    ending.watch.end(DistributedError("the communication thread has ended"), 1)
    ending.time_passes()
    assert ending.done == ["rank 1: a.h5 is damaged", "left"]
