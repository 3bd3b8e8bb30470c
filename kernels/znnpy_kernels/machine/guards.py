"""Runs kernels in tests on arrays between guards, so that a write beside an array raises, on any CPU.

Each array is copied between guards, and back when the kernel has run. Guards are NaN when read as floats, and -1 as
integers.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

# 0xFF in every byte is a NaN as float32 and float64, and -1 as an integer: values that no kernel should compute
# with unnoticed.
GUARD = 0xFF  # each byte of a guard
# The wider a guard, the farther beside an array a stray write is seen, and the more memory a test takes.
LEAST = 1 << 16  # bytes of a guard; as many as the array has if that is more
# Bytes of a page: an array keeps its offset within one, and so the alignment of vectors.
LINE = 4096
# 2^40 is more than any count of voxels here, and the system's addresses of arrays mostly lie above: a smaller
# number passes as a count.
NUMBERS = 1 << 40  # the largest number in a word: larger ones would be addresses


class OutsideError(AssertionError):
    """A kernel wrote outside the memory that its caller gave it."""


class Address(int):
    """An address within an array, which it remembers; bytes may be added. `array` None: no guards."""

    array: NDArray[Any] | None

    def __new__(cls, place: int, array: NDArray[Any] | None) -> Address:
        made = super().__new__(cls, place)
        made.array = array
        return made

    def __add__(self, more: int) -> Address:
        return Address(int(self) + int(more), self.array)

    __radd__ = __add__


def address(array: NDArray[Any]) -> Address:
    """Return the address of an array's first element."""
    return Address(int(array.ctypes.data), owner(array))


def unguarded(place: int) -> Address:
    """Return an address in memory that is no array of the caller's, such as the tables of a plan."""
    return Address(place, None)


def owner(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array that owns the memory of a view."""
    found, base = array, array.base
    while base is not None:
        found = base if isinstance(base, np.ndarray) else found
        base = getattr(base, "base", None)
    return found


class Room(NamedTuple):
    """An array, the argument word that named it first, and its bytes and guards during the trial.

    `moved`: bytes from the array's own place to where the kernel finds it.
    """

    word: str
    array: NDArray[Any]
    before: Bytes
    own: Bytes
    behind: Bytes
    moved: int


def run(name: str, values: Mapping[str, Any], call: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Call a kernel with arrays, or addresses in them, between guards; other words are numbers.

    Returns the result of the call. Raises TypeError for a number that would be an address, OutsideError if the
    kernel wrote beside an array, or in a read-only one.
    """
    # Nearly all words are small numbers, of which nothing need be asked.
    pointing = {
        word: _place(name, word, value)
        for word, value in values.items()
        if type(value) is not int or value > NUMBERS
    }
    places = {word: place for word, place in pointing.items() if place is not None}
    rooms: dict[int, Room] = {}
    for word, place in places.items():
        if place.array is not None and id(place.array) not in rooms:
            rooms[id(place.array)] = _room(word, place.array)
    moved = {
        word: int(place) + (0 if place.array is None else rooms[id(place.array)].moved)
        for word, place in places.items()
    }
    result = call({**values, **moved})
    for room in rooms.values():
        _refuse_writes_outside(name, room)
        if room.array.flags.writeable:
            _bytes(room.array)[:] = room.own
    return result


def _place(name: str, word: str, value: Any) -> Address | None:
    """Return the address of a word; None for a number."""
    if isinstance(value, np.ndarray):
        return address(value)
    if isinstance(value, Address):
        return value
    if isinstance(value, int | np.integer) and value > NUMBERS:
        raise TypeError(
            f"kernel {name}: {word}={value} would be an address: give the array that it is in, or `address` of it, "
            "so that what is written beside the array is seen; `call` takes addresses as they are"
        )
    return None


def _room(word: str, array: NDArray[Any]) -> Room:
    place, size, guard = int(array.ctypes.data), array.nbytes, max(LEAST, array.nbytes)
    # A page more, to give the array the offset within a page that it has at its own place.
    memory = np.full(size + 2 * guard + LINE, GUARD, np.uint8)
    # Alignment decides which path some kernels take, and streaming stores fault without it.
    there = int(memory.ctypes.data)
    start = guard + (place - there - guard) % LINE
    own = memory[start : start + size]
    own[:] = _bytes(array)
    return Room(word, array, memory[:start], own, memory[start + size :], there + start - place)


def _bytes(array: NDArray[Any]) -> Bytes:
    """Return the memory of an array that owns it, in its own order."""
    if not array.nbytes:
        return np.empty(0, np.uint8)
    if array.flags.c_contiguous:  # nearly all are
        return array.reshape(-1).view(np.uint8)
    held = (ctypes.c_uint8 * array.nbytes).from_address(int(array.ctypes.data))
    return np.ctypeslib.as_array(held)


def _refuse_writes_outside(name: str, room: Room) -> None:
    for guard, side in ((room.before, "before"), (room.behind, "behind")):
        if guard.min(initial=GUARD) != GUARD:  # a tenth of the time of a comparison byte by byte
            # The guard before is looked at from its end: the byte nearest to the array comes first.
            written = np.flatnonzero((guard if side == "behind" else guard[::-1]) != GUARD)
            raise OutsideError(
                f"{_told(name, room, side)}: {written.size} bytes, up to {written[-1] + 1} {side} its "
                f"{'first' if side == 'before' else 'last'}"
            )
    if not room.array.flags.writeable and not np.array_equal(room.own, _bytes(room.array)):
        raise OutsideError(f"{_told(name, room, 'into')}, which is read-only")


def _told(name: str, room: Room, where: str) -> str:
    array = room.array
    shape = " x ".join(map(str, array.shape)) or "1"
    size = math.prod(array.shape) * array.itemsize
    return (
        f"kernel {name} wrote {where} {room.word}, an array of {shape} {array.dtype} ({size} bytes)"
    )
