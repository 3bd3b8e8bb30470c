"""Serialises calls of a model from several threads, and refuses a call within another (as from a signal handler)."""

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
    """A lock for the calls of a model: a call waits until those of other threads are over.

    A call within another of the same thread, as a signal handler may make it, would find half of that done:
    ZnnpyError. So does a call in the child of a fork made during another thread's call, which never ends there.
    """

    @classmethod
    def of(cls, shared: object = None) -> Turn:
        """Return the turn of all models that share something, such as messages between ranks; a new one for None."""
        return cls() if shared is None else _shared.setdefault(shared, cls())

    def __init__(self) -> None:
        self.lock = threading.RLock()  # reentrant: a handler gets an error and not a deadlock
        self.within = ""
        _turns.add(self)

    def refuse_within(self, call: str) -> None:
        """Raise ZnnpyError if a call of this thread is in progress: it cannot continue before this one ends."""
        if self.within:
            raise ZnnpyError(
                f"{call}: this model is in the middle of `{self.within}`, which a signal handler or a fork has "
                "interrupted; note what is wanted, and call it when that is over"
            )


class Called(Protocol):
    """An object whose methods are marked `in_turn`."""

    _turn: Turn


C = TypeVar("C", bound=Called)


def in_turn(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Let only one thread at a time into the methods of an object that are marked so."""
    name = method.__name__

    @wraps(method)
    def called(self: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
        turn = self._turn
        # The lock itself: Ctrl-C may strike between the lines of a context manager in Python.
        with turn.lock:
            # The lock is reentrant, so a call of the same thread gets here: it must be refused, not
            # let in.
            if turn.within:
                turn.refuse_within(name)
            try:
                turn.within = name
                return method(self, *args, **kwargs)
            finally:
                # In `finally`: an exception, or Ctrl-C, ends the call as well.
                turn.within = ""

    return called


class Staging:
    """Tracks which thread fills the staged inputs, to refuse `run` if another thread has used the model meanwhile."""

    def __init__(self) -> None:
        self._thread: int | None = None
        self._waiting = self._torn = False  # to be run; used by another thread

    def begin(self) -> None:
        """Note that this thread is about to fill the staged inputs."""
        me = threading.get_ident()
        self._torn = self._waiting and (self._torn or self._thread != me)
        self._thread, self._waiting = me, True

    def use(self) -> None:
        """Note a call that overwrites the staged inputs."""
        # Asked at each update, of a model whose inputs nobody has staged.
        if self._thread is not None:
            self._torn = self._torn or not self._mine

    def end(self) -> None:
        """Raise ZnnpyError unless this thread alone has used the staged inputs since `begin`."""
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
    """Replace all locks in the child of a fork: threads that held one do not exist there."""
    for turn in list(_turns):
        turn.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
