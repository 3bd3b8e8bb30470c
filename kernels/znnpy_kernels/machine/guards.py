"""Kernels tried on arrays between guards: a write beside an array is seen at once, in any kernel, for any CPU.

Each array is copied to where nothing is around it but guards, and back when the kernel is done. Guards are
NaN to who reads them as floats, and -1 as integers.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

GUARD = 0xFF  # each byte of a guard
LEAST = 1 << 16  # bytes of a guard; as many as the array has where that is more
LINE = 4096  # where an array begins within a page is kept, and so whether vectors are aligned
NUMBERS = 1 << 40  # the largest: what is beyond would be an address


class OutsideError(AssertionError):
    """A kernel wrote where its caller has no room for it."""


class Address(int):
    """An address within an array, which it remembers; bytes may be added. `array` None: not to be guarded."""

    array: NDArray[Any] | None

    def __new__(cls, place: int, array: NDArray[Any] | None) -> Address:
        made = super().__new__(cls, place)
        made.array = array
        return made

    def __add__(self, more: int) -> Address:
        return Address(int(self) + int(more), self.array)

    __radd__ = __add__


def address(array: NDArray[Any]) -> Address:
    """Of an array's first element."""
    return Address(int(array.ctypes.data), owner(array))


def unguarded(place: int) -> Address:
    """An address in memory that is no array of the caller's, such as the tables of a plan."""
    return Address(place, None)


def owner(array: NDArray[Any]) -> NDArray[Any]:
    """The array that all memory of a view belongs to."""
    found, base = array, array.base
    while base is not None:
        found = base if isinstance(base, np.ndarray) else found
        base = getattr(base, "base", None)
    return found


class Room(NamedTuple):
    """An array, the argument word that named it first, and its bytes and guards where the kernel is tried."""

    word: str
    array: NDArray[Any]
    before: Bytes
    own: Bytes
    behind: Bytes

    @property
    def moved(self) -> int:
        """Bytes from where the array is to where the kernel finds it."""
        return int(self.own.ctypes.data - self.array.ctypes.data)


def run(name: str, values: Mapping[str, Any], call: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Call a kernel with arrays, or addresses in them, between guards; other words are numbers.

    Gives what the call gives. Raises TypeError for a number that would be an address, OutsideError where
    the kernel has written beside an array, or in one that is read-only.
    """
    pointing = {word: _place(name, word, value) for word, value in values.items()}
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
    """Where a word points to; None of a number."""
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
    size, guard = array.nbytes, max(LEAST, array.nbytes)
    memory = np.full(size + 2 * guard + LINE, GUARD, np.uint8)
    start = guard + int(array.ctypes.data - memory.ctypes.data - guard) % LINE
    before, own, behind = np.split(memory, [start, start + size])
    own[:] = _bytes(array)
    return Room(word, array, before, own, behind)


def _bytes(array: NDArray[Any]) -> Bytes:
    """The memory of an array that owns it, in the order in which it lies; read-only arrays' too."""
    if not array.nbytes:
        return np.empty(0, np.uint8)
    held = (ctypes.c_uint8 * array.nbytes).from_address(int(array.ctypes.data))
    return np.ctypeslib.as_array(held)


def _refuse_writes_outside(name: str, room: Room) -> None:
    what = f"kernel {name} wrote %s {room.word}, an array of {_told(room.array)}"
    for guard, side in ((room.before[::-1], "before"), (room.behind, "behind")):
        if (written := np.flatnonzero(guard != GUARD)).size:
            raise OutsideError(
                f"{what % side}: {written.size} bytes, up to {written[-1] + 1} {side} its "
                f"{'first' if side == 'before' else 'last'}"
            )
    if not room.array.flags.writeable and not np.array_equal(room.own, _bytes(room.array)):
        raise OutsideError(f"{what % 'into'}, which is read-only")


def _told(array: NDArray[Any]) -> str:
    shape = " x ".join(map(str, array.shape)) or "1"
    return f"{shape} {array.dtype} ({math.prod(array.shape) * array.itemsize} bytes)"
