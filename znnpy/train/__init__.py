"""Trains networks: the loop, run directories, checkpoints, logs, signals; `session.train` is the entrance."""

from znnpy.callable_room import make_callable

make_callable(__name__, "znnpy.interactive")
