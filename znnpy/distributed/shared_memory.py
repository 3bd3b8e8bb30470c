"""Shared memory windows between ranks of one host, so that gradients are added without copies."""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from znnpy.distributed.world import World

# mmap's module does not name it.
MAP_FIXED = 0x10  # of Linux, on every processor


class _Place(NamedTuple):
    """The place of a window: its host, the file descriptor of its process, and its name.

    The window is `size` bytes that begin `offset` bytes after a page's start.
    """

    host: str
    file: str
    name: str
    offset: int
    size: int


@dataclass
class Windows:
    """This rank's window and those of others of its host: how many bytes after ours theirs begin, by rank."""

    shifts: dict[int, int]
    _file: int
    _maps: list[mmap.mmap] = field(default_factory=list)

    @classmethod
    def open(cls, world: World, address: int, size: int) -> Windows:
        """Share memory that was not touched yet, and map that of others; all ranks call it together.

        A rank that cannot map another, or has a window of another size, is missing from the other's shifts too.
        """
        # Pages are what can be mapped: the window begins within the first of them.
        first = address - address % mmap.PAGESIZE
        whole = -(-(address + size - first) // mmap.PAGESIZE) * mmap.PAGESIZE
        # A random name: file descriptors of processes in other containers may have the same numbers.
        name, file = f"znnpy-{secrets.token_hex(8)}", -1
        # Linux alone has it; elsewhere nobody is seen, and messages are ordinary.
        if hasattr(os, "memfd_create"):
            file = _laid_over(first, whole, name)
        where = f"/proc/{os.getpid()}/fd/{file}"
        own = _Place(socket.gethostname(), where, name, address - first, size)
        places = [_Place(*told) for told in world.exchange(own)]
        found = cls({}, file)
        for rank, place in enumerate(places):
            # Windows of other sizes belong to other plans: addresses in them mean nothing here.
            if rank != world.rank and place.host == own.host and place.size == size:
                found._see(rank, place, address)
        seen = world.exchange(sorted(found.shifts))
        # Both must see each other: a hop needs one to read and the other to know that it does.
        found.shifts = {r: it for r, it in found.shifts.items() if world.rank in seen[r]}
        return found

    @classmethod
    def near(cls, world: World) -> frozenset[int]:
        """Return the ranks that can map this one's memory, and it theirs; all ranks call it together."""
        # A trial of one page, before the plan decides where messages need rooms.
        page = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.uint8)
        windows = cls.open(world, page.ctypes.data, page.nbytes)
        windows.close()
        return frozenset(windows.shifts)

    def _see(self, rank: int, place: _Place, address: int) -> None:
        """Map another rank's window; do nothing where that is not allowed."""
        with suppress(OSError):
            if place.name not in Path(place.file).readlink().name:
                return  # another process of that number, in another container
            # Read only: a rank adds into its own memory alone.
            file = os.open(place.file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                found = mmap.mmap(file, place.offset + place.size, mmap.MAP_SHARED, mmap.PROT_READ)
            finally:
                os.close(file)
            self._maps.append(found)
            begin = int(np.frombuffer(found, np.uint8).ctypes.data) + place.offset
            # A buffer at our address is `shift` further in the other's window, since both plans are the same.
            self.shifts[rank] = begin - address

    def close(self) -> None:
        """Close the file; others have mapped it, and keep it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _laid_over(first: int, size: int, name: str) -> int:
    """Map a file in memory in place of these pages; return it, or -1 where the system gives none."""
    try:
        file = os.memfd_create(name, os.MFD_CLOEXEC)
    except OSError:
        return -1
    os.ftruncate(file, size)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    rights = mmap.PROT_READ | mmap.PROT_WRITE
    # Over what lies there: allowed because nothing has been written to these pages yet.
    if libc.mmap(first, size, rights, mmap.MAP_SHARED | MAP_FIXED, file, 0) != first:
        os.close(file)
        return -1
    return file
