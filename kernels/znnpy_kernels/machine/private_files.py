"""Checks that nobody else can have changed a folder or file, before cached data are read from it.

numba's index is a pickle, so whoever writes into the cache runs code in every process that reads it. Owners and
modes are checked and never mended: files that others could write until now cannot be trusted. What root alone can
write is as good as one's own, since root may change anything anyway.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

ROOT = 0


def _trusted(found: os.stat_result) -> bool:
    """Return whether a file or folder belongs to this user or to root."""
    return found.st_uid in (ROOT, os.getuid())


def others_write(found: os.stat_result) -> bool:
    """Return whether somebody else may write: anybody, or a group that is not this user's alone.

    Where each user has a group of the same name, folders are made writable for it (umask 002).
    """
    # Anybody: no group makes that good.
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _own_group(found.st_gid)


def _own_group(number: int) -> bool:
    try:
        user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(number)
    except KeyError:  # without an entry its members are unknown
        return False
    # Alone in it: the group has the user's name, and no other member.
    return group.gr_name == user and set(group.gr_mem) <= {user}


def shared(folder: Path) -> bool:
    """Return whether an existing folder belongs to somebody else, or others may write into it."""
    found = folder.stat()
    return found.st_uid != os.getuid() or others_write(found)


def read_only(folder: Path) -> bool:
    """Return whether this user can read an existing folder but not write it, and nobody else could but root."""
    # First what costs least: this is asked several times for each kernel, of folders that can be written to.
    if os.access(folder, os.W_OK) or not folder.is_dir() or why_not(folder):
        return False
    return os.access(folder, os.R_OK | os.X_OK)


def make(folder: Path) -> None:
    """Make a folder, and missing ones above it, for this user alone; OSError if that fails."""
    missing = []
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        # With `exist_ok`, as another process may make it meanwhile; who owns it is checked by whoever asks
        # next.
        path.mkdir(mode=0o700, exist_ok=True)


def why_not(path: Path) -> str:
    """Return why others could change a folder or file, or could have; "" if they could not.

    It must be no link, belong to this user or root, and nobody else may write into it. The same holds for all folders
    above it, except folders of root and sticky ones, in which nobody can replace it.
    """
    # `lstat`: a link is refused, not followed.
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return f"{path} is a link"
    if not _trusted(found):
        return f"{path} belongs to another user"
    if others_write(found):
        return f"others can write into {path}"
    for folder in path.resolve().parents:
        above = folder.stat()
        if not _trusted(above):
            return f"{folder} belongs to another user"
        # Sticky folders, such as /tmp: only owners can remove or rename what is theirs.
        if others_write(above) and not above.st_mode & stat.S_ISVTX:
            return f"others can replace what is in {folder}"
    return ""


def own_file(path: Path) -> bool:
    """Return whether a file exists, is no link, belongs to this user or root, and nobody else can write it."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and _trusted(found) and not others_write(found)


def foreign(folder: Path) -> Path | None:
    """Return a file or folder within that others could have written, or a link; None if there is none.

    Modes do not matter within a folder that only this user can enter.
    """
    # Whether others can enter at all.
    entered = bool(folder.lstat().st_mode & 0o077)
    for above, folders, names in os.walk(folder):
        for name in (*folders, *names):
            found = (path := Path(above, name)).lstat()
            if stat.S_ISLNK(found.st_mode) or not _trusted(found):
                return path
            if entered and others_write(found):
                return path
    return None
