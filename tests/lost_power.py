"""What may be left on a disk after the power was lost, by all that POSIX promises and no more.

`recording.c` writes down what a process did. What was synced is there: data of a file by its own sync,
names in a folder by the folder's. Of anything else each call may have reached the disk or not, in any
order; writes also by half, or as zeros of their length.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_HEAD = struct.Struct("<5q")


@dataclass(frozen=True)
class Event:
    """A call: `kind` as in `recording.c`, paths relative to the folder, `size` with or without data."""

    kind: str
    path: str
    other: str
    place: int
    size: int
    data: bytes


@dataclass
class File:
    """Changes of a file's bytes in order; the first `synced` are on the disk."""

    changes: list[Event] = field(default_factory=list)
    synced: int = 0


@dataclass
class Folder:
    """Changes of a folder's names in order, None where one goes; the first `synced` are on the disk."""

    changes: list[dict[str, File | Folder | None]] = field(default_factory=list)
    synced: int = 0

    def names(self, kept: Callable[[], bool] = lambda: True) -> dict[str, File | Folder]:
        """What is in it, of what is not synced only what is kept."""
        found: dict[str, File | Folder | None] = {}
        for number, change in enumerate(self.changes):
            if number < self.synced or kept():
                found |= change
        return {name: node for name, node in found.items() if node is not None}


Tree = dict[str, bytes | None]
"""Files by path; None is a folder."""


class Disk:
    """A folder that was empty at first, to which events happen."""

    def __init__(self) -> None:
        self._top = Folder()
        self.marks: list[str] = []

    def happen(self, event: Event) -> None:
        """One call more."""
        above, _, name = event.path.rpartition("/")
        if event.kind == "m":
            self.marks.append(event.path)
        elif event.kind in "cd":
            made = File() if event.kind == "c" else Folder()
            self._folder(above).changes.append({name: made})
        elif event.kind == "u":
            self._folder(above).changes.append({name: None})
        elif event.kind == "r":
            into, _, new = event.other.rpartition("/")
            assert into == above, "a move to another folder is two changes"
            moved = self._folder(above).names()[name]
            self._folder(above).changes.append({name: None, new: moved})
        else:
            self._change(event)

    def left(self, rng: random.Random | None, share: float = 0.0) -> Tree:
        """A state after a loss of power; what is not synced is there by `share`, in parts by `rng`."""

        def kept() -> bool:
            return share >= 1 or (rng is not None and rng.random() < share)

        tree: Tree = {}
        self._collect(self._top, "", kept, rng, tree)
        return tree

    def _collect(
        self,
        folder: Folder,
        path: str,
        kept: Callable[[], bool],
        rng: random.Random | None,
        tree: Tree,
    ) -> None:
        for name, node in folder.names(kept).items():
            here = f"{path}{name}"
            if isinstance(node, Folder):
                tree[here] = None
                self._collect(node, f"{here}/", kept, rng, tree)
            else:
                tree[here] = _bytes(node, kept, rng)

    def _change(self, event: Event) -> None:
        node = self._node(event.path)
        if node is None:
            return  # a file without a name
        if event.kind == "s":
            node.synced = len(node.changes)
        else:
            assert isinstance(node, File)
            node.changes.append(event)

    def _node(self, path: str) -> File | Folder | None:
        node: File | Folder | None = self._top
        for name in path.split("/") if path else []:
            node = node.names().get(name) if isinstance(node, Folder) else None
        return node

    def _folder(self, path: str) -> Folder:
        node = self._node(path)
        assert isinstance(node, Folder), path
        return node


def _bytes(file: File, kept: Callable[[], bool], rng: random.Random | None) -> bytes:
    data = bytearray()
    for number, change in enumerate(file.changes):
        if number >= file.synced and not kept():
            continue
        if change.kind == "t":
            del data[change.size :]
        written = change.data
        if number >= file.synced and rng is not None and change.kind == "w":
            written = rng.choice(
                (written, written, written[: len(written) // 2], bytes(len(written)))
            )
        end = change.place + len(written) if change.kind == "w" else change.size
        data.extend(bytes(max(0, end - len(data))))
        if change.kind == "w":
            data[change.place : end] = written
    return bytes(data)


def recorded(path: Path, root: Path) -> Iterator[Event]:
    """The calls that were written down."""
    trace, at = path.read_bytes(), 0
    while at < len(trace):
        kind, *sizes, place, size = _HEAD.unpack_from(trace, at)
        at += _HEAD.size
        paths = []
        for length in sizes:
            paths.append(trace[at : at + length].decode())
            at += length
        data = trace[at : at + size] if chr(kind) == "w" else b""
        at += len(data)
        first, second = (text.removeprefix(str(root)).lstrip("/") for text in paths)
        yield Event(chr(kind), first, second, place, size, data)


def states(
    events: list[Event], seed: int, samples: int, step: int = 1
) -> Iterator[tuple[int, Tree, list[str]]]:
    """After each `step` calls: all may be lost, nothing, or some, drawn so often; each state once.

    With the number of calls, and what had been marked before them.
    """
    rng, disk, seen = random.Random(seed), Disk(), set()
    for number, event in enumerate(events, 1):
        disk.happen(event)
        if number % step and number != len(events):
            continue
        drawn = [disk.left(rng, rng.choice((0.2, 0.5, 0.8))) for _ in range(samples)]
        for tree in (disk.left(None), disk.left(None, 1.0), *drawn):
            key = hash((tuple(sorted(tree.items(), key=lambda item: item[0])), len(disk.marks)))
            if key not in seen:
                seen.add(key)
                yield number, tree, list(disk.marks)


def restore(tree: Tree, folder: Path) -> None:
    """Make a folder hold this and nothing else."""
    shutil.rmtree(folder)
    folder.mkdir()
    for name, data in tree.items():
        if data is None:
            (folder / name).mkdir(parents=True, exist_ok=True)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
