"""Finds the Linux control groups of this process, which hold memory and CPU limits of containers and cluster jobs."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def folders(controller: str, root: Path = ROOT, membership: Path = MEMBERSHIP) -> list[Path]:
    """Return the folders of the process's own control groups and all above them, of cgroup v2 and of a v1 `controller`.

    Inside a container this is often the root alone; a folder need not exist.
    """
    found = [root, root / controller]
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, path = line.split(":", 2)
        base = root if not controllers else root / controller
        if controllers and controller not in controllers.split(","):
            continue
        own = base / path.lstrip("/")
        found += [folder for folder in (own, *own.parents) if base in (folder, *folder.parents)]
    return list(dict.fromkeys(found))


def words(file: Path) -> list[str]:
    """Return the words of a control group's file; empty when it cannot be read."""
    try:
        return file.read_text().split()
    except OSError:
        return []
