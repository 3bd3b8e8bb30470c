"""The control groups of this process: where the limits of containers and of a cluster's jobs stand."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def folders(controller: str, root: Path = ROOT, membership: Path = MEMBERSHIP) -> list[Path]:
    """The process's own groups and all above them, of version 2 and of a version 1 `controller`.

    Inside a container often the root alone; a folder need not exist.
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
    """The words of a group's file; none when it cannot be read."""
    try:
        return file.read_text().split()
    except OSError:
        return []
