"""Segments predictions of whole volumes into objects: `znnpy segment`."""

from znnpy.callable_room import make_callable

make_callable(__name__, "znnpy.interactive")
