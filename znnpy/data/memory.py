"""How much memory this process may take: the machine's, or its control group's."""

from __future__ import annotations

from pathlib import Path

import psutil

from znnpy.cgroups import MEMBERSHIP, ROOT, folders, words


def total_memory(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int:
    """Bytes of the machine, or of the smallest limit of this process's control groups (versions 1, 2).

    The same for a job whatever else runs beside it.
    """
    limits = [limit for limit, _ in _limits(root, membership)]
    return min(int(psutil.virtual_memory().total), *limits)


def share_memory(processes: int) -> None:
    """From now on what is available is divided by so many processes of this host, of which this is one."""
    global _sharers
    _sharers = processes


def available_memory(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int:
    """Bytes that can be taken now without swapping; limits of control groups count.

    An equal part of them where this process shares its host with others that take as much.
    """
    rooms = [limit - used for limit, used in _limits(root, membership)]
    return max(0, min(int(psutil.virtual_memory().available), *rooms)) // _sharers


def available(free: int) -> str:
    """So much `available_memory` for people, as the end of "but only ..."."""
    ranks = f" to each of {_sharers} ranks of this host" if _sharers > 1 else ""
    return f"{readable(free)} are available{ranks}"


def whole_memory(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int:
    """Bytes that no process can get beyond: the machine's with its swap, or a control group's limit."""
    machine = int(psutil.virtual_memory().total + psutil.swap_memory().total)
    return min(machine, *(limit for limit, _ in _limits(root, membership)))


def readable(size: float) -> str:
    """A number of bytes for people: 4.0 TiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _limits(root: Path, membership: Path) -> list[tuple[int, int]]:
    """Limit of each control group that has one, and what is taken of it, caches of files left out."""
    found = [(_UNLIMITED, 0)]
    for folder in folders("memory", root, membership):
        for limit, used, cached in _VERSIONS:
            most = _number(folder / limit)
            if most is not None:
                taken = (_number(folder / used) or 0) - _entry(folder / "memory.stat", cached)
                found.append((most, max(0, taken)))
    return found


_sharers = 1
_UNLIMITED = 1 << 63
_VERSIONS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _number(file: Path) -> int | None:
    found = words(file)
    return int(found[0]) if len(found) == 1 and found[0].isdigit() else None


def _entry(file: Path, name: str) -> int:
    """A number by name from a file of lines `name number`; 0 when it is not there."""
    found = words(file)
    pairs = dict(zip(found[::2], found[1::2], strict=False))
    return int(pairs[name]) if pairs.get(name, "").isdigit() else 0
