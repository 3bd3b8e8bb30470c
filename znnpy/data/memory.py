"""How much memory this process may still take: the machine's, or its control group's."""

from __future__ import annotations

from pathlib import Path

import psutil

_GROUP = Path("/sys/fs/cgroup")


def available_memory(group: Path = _GROUP) -> int:
    """Bytes that can be taken without swapping; a cgroup v2 limit (containers, jobs) counts."""
    machine = int(psutil.virtual_memory().available)
    limit = _number(group / "memory.max")
    if limit is None:
        return machine
    return max(0, min(machine, limit - (_number(group / "memory.current") or 0)))


def whole_memory(group: Path = _GROUP) -> int:
    """Bytes that no process can get beyond: the machine's with its swap, or a cgroup v2 limit."""
    machine = int(psutil.virtual_memory().total + psutil.swap_memory().total)
    limit = _number(group / "memory.max")
    return machine if limit is None else min(machine, limit)


def readable(size: float) -> str:
    """A number of bytes for people: 4.0 TiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
