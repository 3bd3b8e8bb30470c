"""Calls of a model from several threads: one after the other, and none within another."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from znnpy.errors import ZnnpyError

P = ParamSpec("P")
R = TypeVar("R")


class Turn:
    """Whose turn it is: a call waits until those of other threads are over.

    One within another of the same thread, as a signal handler may make it, would find half of that done: ZnnpyError.
    So is one in the child of a fork that another thread's call was under way at, which nobody there ends.
    """

    @classmethod
    def of(cls, shared: object = None) -> Turn:
        """The one of all that share something, such as the messages between ranks; one's own for None."""
        return cls() if shared is None else _shared.setdefault(shared, cls())

    def __init__(self) -> None:
        self.lock = threading.RLock()  # which a handler can take again, to be told so
        self.within = ""
        _turns.add(self)

    def refuse_within(self, call: str) -> None:
        """ZnnpyError where a call is under way that does not go on before this one is over."""
        if self.within:
            raise ZnnpyError(
                f"{call}: this model is in the middle of `{self.within}`, which a signal handler or a fork has "
                "interrupted; note what is wanted, and call it when that is over"
            )


class Called(Protocol):
    """What has calls that come in turn."""

    _turn: Turn


C = TypeVar("C", bound=Called)


def in_turn(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """A method that only one thread at a time is in, of all that are so marked."""
    name = method.__name__

    @wraps(method)
    def called(self: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
        turn = self._turn
        with turn.lock:  # itself, as Ctrl-C may come between the lines of anything in Python
            turn.refuse_within(name)
            try:
                turn.within = name
                return method(self, *args, **kwargs)
            finally:
                turn.within = ""

    return called


class Staging:
    """Which thread fills the memory that is staged: what another has used meanwhile is not what it has left there."""

    def __init__(self) -> None:
        self._thread: int | None = None
        self._waiting = self._torn = False  # to be run; used by another thread

    def begin(self) -> None:
        """This thread is about to fill it."""
        me = threading.get_ident()
        self._torn = self._waiting and (self._torn or self._thread != me)
        self._thread, self._waiting = me, True

    def use(self) -> None:
        """This thread has it filled for a call of another kind."""
        self._torn = self._torn or not self._mine

    def end(self) -> None:
        """ZnnpyError unless this thread alone has used it since it began."""
        if self._mine:
            self._waiting = False
        if self._torn or not self._mine:
            raise ZnnpyError(
                "run: another thread has used this model since this one called `staged`, so that what was staged is "
                "no longer there; hold a lock over `staged` and `run`, or call `forward`, which needs none"
            )

    @property
    def _mine(self) -> bool:
        return self._thread in (None, threading.get_ident())


_turns: weakref.WeakSet[Turn] = weakref.WeakSet()
_shared: weakref.WeakKeyDictionary[object, Turn] = weakref.WeakKeyDictionary()


def _renew() -> None:
    """In the child of a fork: threads that held a lock are not there to give it back."""
    for turn in list(_turns):
        turn.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
