"""A disk that fails on demand: a library that is preloaded, armed from here through a shared file."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "tests" / "infer" / "dying.c"
STATE = "qqq"  # calls, limit, failure


class Disk:
    """Fails the calls of all processes that are started with `environment`, once armed.

    Without a C compiler there is no such disk: `Disk.made` gives None.
    """

    def __init__(self, library: Path, state: Path) -> None:
        state.write_bytes(struct.pack(STATE, 0, -1, 0))
        with state.open("r+b") as file:
            self._state = mmap.mmap(file.fileno(), struct.calcsize(STATE))
        self.environment = {"LD_PRELOAD": str(library), "DYING": str(state)}

    @classmethod
    def made(cls, folder: Path) -> Disk | None:
        """Compile the library in a folder."""
        compiler = shutil.which("cc")
        if compiler is None:
            return None
        library = folder / "dying.so"
        words = [compiler, str(SOURCE), "-o", str(library), "-O1", "-shared", "-fPIC", "-ldl"]
        subprocess.run(words, check=True)
        return cls(library, folder / "dying.state")

    def arm(self, calls: int, failure: int) -> None:
        """After so many more calls fail all with this errno; 0: kill the process at that call."""
        struct.pack_into(STATE, self._state, 0, 0, calls, failure)

    def disarm(self) -> None:
        """The disk is whole again."""
        struct.pack_into("q", self._state, 8, -1)
