"""How much memory this process may take: the machine's, its control group's limit, or its share among ranks."""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from znnpy.cgroups import MEMBERSHIP, ROOT, folders, words

M_MMAP_THRESHOLD = -3  # of glibc's malloc.h
LARGE = 256 << 10  # smaller: pages are asked for too often


def total_memory(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int:
    """Return the bytes of the machine, or the smallest limit of this process's control groups (versions 1, 2).

    The same for a job whatever else runs beside it.
    """
    limits = [limit for limit, _ in _limits(root, membership)]
    return min(int(psutil.virtual_memory().total), *limits)


@dataclass
class Part:
    """This process's equal part of the memory that was free before any of a host's processes took some.

    So all of them judge alike what fits, in whatever order they come.
    """

    processes: int
    free: int
    taken: int = 0

    @property
    def left(self) -> int:
        """The bytes left of the part."""
        return max(0, self.free // self.processes - self.taken)


def share_memory(processes: int, free: int = 0) -> None:
    """Count from now on with an equal part of `free` bytes for so many processes of this host; 1: with all memory."""
    global _part
    _part = Part(processes, free) if processes > 1 else None


def take(size: int) -> None:
    """Count bytes that this process keeps for long."""
    if _part:
        _part.taken += size


@contextmanager
def kept_no_longer() -> Iterator[None]:
    """Release at the end what was counted within."""
    before = _part.taken if _part else 0
    try:
        yield
    finally:
        if _part:
            _part.taken = before


def available_memory(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int:
    """Return the bytes that this process can take now without swapping; of its part, where it shares its host.

    Memory that other programs have taken since is not divided: it cannot be told from that of other ranks.
    """
    free = free_memory(root, membership)
    return min(free, _part.left) if _part else free


def free_memory(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int:
    """Return the bytes that are free now for all processes; limits of control groups count."""
    rooms = [limit - used for limit, used in _limits(root, membership)]
    return max(0, min(int(psutil.virtual_memory().available), *rooms))


def available(free: int) -> str:
    """Return `available_memory` as text, for the end of "but only ..."."""
    ranks = f" to each of {_part.processes} ranks of this host" if _part else ""
    return f"{readable(free)} are available{ranks}"


def whole_memory(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int:
    """Return the bytes that no process can exceed: the machine's with its swap, or a control group's limit."""
    machine = int(psutil.virtual_memory().total + psutil.swap_memory().total)
    return min(machine, *(limit for limit, _ in _limits(root, membership)))


def readable(size: float) -> str:
    """Return a number of bytes as text: 4.0 TiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _limits(root: Path, membership: Path) -> list[tuple[int, int]]:
    """Return limit and use of each control group that has a limit; file caches do not count as use."""
    found = [(_UNLIMITED, 0)]
    for folder in folders("memory", root, membership):
        for limit, used, cached in _VERSIONS:
            most = _number(folder / limit)
            if most is not None:
                taken = (_number(folder / used) or 0) - _entry(folder / "memory.stat", cached)
                found.append((most, max(0, taken)))
    return found


def give_back() -> None:
    """Hand memory back to the system that this process has freed and keeps; where the C library does not, nothing."""
    # The larger the arrays that were freed, the larger the ones that glibc keeps from then on, up to 32 MiB each.
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def map_large_arrays() -> None:
    """Let each array of a quarter MiB or more have pages of its own from now on, which go back when it is freed.

    Else glibc keeps room for arrays as large as any that was freed, in pieces. Where the C library cannot, nothing.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)


def give_back_libraries(maps: Path = Path("/proc/self/smaps")) -> int:
    """Hand back the pages of libraries, most of which will not be run again; return their bytes.

    They come back from their files when they are run. Where the system does not tell what is mapped, nothing.
    """
    given = 0
    with suppress(AttributeError, OSError):
        advise = ctypes.CDLL(None).madvise
        for first, size, taken in _unchanged(maps.read_text(errors="replace")):
            if not advise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_DONTNEED):
                given += taken
    return given


def _unchanged(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield address, bytes and bytes in memory of what is mapped of libraries as it is in their files.

    What may be written, or has been (addresses that the loader has set), is in no file: such pages are anonymous, or
    swapped out. A library that another thread is loading is left alone: its first mapping reaches over all of it,
    until the part to be written, its last, has its place.
    """
    found = re.findall(r"^([0-9a-f]+-[0-9a-f]+ .*)\n((?:\w+:.*\n)+)", text, re.MULTILINE)
    mapped = [(name.split(maxsplit=5), part) for name, part in found]
    loaded = {tuple(name[3:5]) for name, _ in mapped if name[1].startswith("rw-p")}
    for (bounds, access, _, *file), part in mapped:
        if access[1:4:2] != "-p" or file[1] == "0" or tuple(file[:2]) not in loaded:
            continue
        numbers = dict(re.findall(r"^(\w+):\s+(\d+) kB", part, re.MULTILINE))
        taken = int(numbers.get("Rss", 0)) << 10
        if taken and numbers.get("Anonymous") == numbers.get("Swap", "0") == "0":
            first, end = (int(it, 16) for it in bounds.split("-"))
            yield first, end - first, taken


_part: Part | None = None
_UNLIMITED = 1 << 63  # bytes: more than any machine has
_VERSIONS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _number(file: Path) -> int | None:
    found = words(file)
    return int(found[0]) if len(found) == 1 and found[0].isdigit() else None


def _entry(file: Path, name: str) -> int:
    """Return a number by name from a file of lines `name number`; 0 when it is not there."""
    found = words(file)
    pairs = dict(zip(found[::2], found[1::2], strict=False))
    return int(pairs[name]) if pairs.get(name, "").isdigit() else 0
