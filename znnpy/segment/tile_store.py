"""A folder beside an output, with what is known of each tile and each object until the output is finished.

Every file appears whole or not at all, so that what is there is done: a killed process goes on behind it. The folder
belongs to one job, which its first file names; that of another is emptied. Whoever writes has the output's lock.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from znnpy.atomic_files import sync, write_whole
from znnpy.data.volume import Triple
from znnpy.data.writing.destination import partial_of
from znnpy.errors import VolumeError
from znnpy.segment.bonds import Bonds
from znnpy.segment.faces import Faces
from znnpy.segment.fragments import Labels
from znnpy.segment.summary import Summary
from znnpy.segment.tiles import Part, Plane

JOB, NUMBERS, SUMMARY = "job.json", "numbers.npy", "summary.json"


@dataclass(frozen=True)
class TileStore:
    """The files of the tiles of one output."""

    folder: Path

    @classmethod
    def beside(cls, output: Path) -> TileStore:
        """Return the store of an output that is to stand there."""
        partial = partial_of(output)
        return cls(partial.with_name(f"{partial.name}.tiles").resolve())

    def begin(self, job: Mapping[str, Any]) -> None:
        """Make the folder for a job; one that was begun for the same job stays."""
        wanted = json.dumps(dict(job), sort_keys=True).encode()
        named = self.folder / JOB
        if named.is_file() and named.read_bytes() == wanted:
            return
        self.remove()
        self.folder.mkdir()
        sync(self.folder.parent)
        write_whole(named, lambda file: file.write(wanted))

    def remove(self) -> None:
        """Remove the folder and all in it, if it is there."""
        if self.folder.is_dir():
            # First what says whose it is: a folder that is removed by half is nobody's.
            (self.folder / JOB).unlink(missing_ok=True)
            shutil.rmtree(self.folder)

    def has(self, place: Triple) -> bool:
        """Return whether a tile is done."""
        return self._part(place).is_file()

    def write(self, place: Triple, labels: Labels, part: Part, highest: float) -> None:
        """Keep a tile: its labels first, as it is done once its part is there."""
        arrays: dict[str, Any] = {
            "ids": part.ids,
            "voxels": part.voxels,
            "highest": np.float64(highest),
        }
        arrays |= {"pairs": part.faces.pairs, "total": part.faces.total, "size": part.faces.size}
        if part.faces.counts is not None:
            arrays["counts"] = part.faces.counts
        for name, planes in (("first", part.first), ("last", part.last)):
            for axis, plane in enumerate(planes):
                arrays |= {
                    f"{name}_labels_{axis}": plane.labels,
                    f"{name}_height_{axis}": plane.height,
                }
        write_whole(
            self._labels(place), lambda file: np.savez_compressed(file, labels=_narrow(labels))
        )
        write_whole(self._part(place), lambda file: np.savez(file, **arrays))

    def part(self, place: Triple) -> Part:
        """Return what a tile brings to the graph."""
        found = _loaded(self._part(place))
        planes = [
            tuple(
                Plane(found[f"{name}_labels_{axis}"], found[f"{name}_height_{axis}"])
                for axis in range(3)
                if f"{name}_labels_{axis}" in found
            )
            for name in ("first", "last")
        ]
        faces = Faces(found["pairs"], found["total"], found["size"], found.get("counts"))
        return Part(found["ids"], found["voxels"], faces, planes[0], planes[1])

    def ids(self, place: Triple) -> NDArray[np.int64]:
        """Return the fragments of a tile, as `Part` names them."""
        path = self._part(place)
        return np.asarray(_array_of(path, "ids"), np.int64)

    def highest(self, place: Triple) -> float:
        """Return the largest probability that was read for a tile."""
        return float(_array_of(self._part(place), "highest"))

    def labels(self, place: Triple) -> NDArray[Any]:
        """Return the fragments of a tile, numbered from 1 within it."""
        return self._kept(self._labels(place))

    def settle(self, tables: list[NDArray[np.uint64]], places: list[Triple], all_: Summary) -> None:
        """Keep the number of the object of each tile's fragments, after 0 for none, and the summary."""
        starts = np.cumsum([0, *map(len, tables)])
        whole = np.concatenate(tables)
        write_whole(self.folder / NUMBERS, lambda file: file.write(whole.tobytes()))
        found = {
            "starts": {_name(place): int(at) for place, at in zip(places, starts, strict=False)},
            "sizes": {_name(place): len(it) for place, it in zip(places, tables, strict=True)},
            "summary": vars(all_),
        }
        text = json.dumps(found).encode()
        write_whole(self.folder / SUMMARY, lambda file: file.write(text))

    @property
    def settled(self) -> bool:
        """Return whether all fragments have their objects."""
        return (self.folder / SUMMARY).is_file()

    def summary(self) -> Summary:
        """Return what came out."""
        return Summary(**_settled(self.folder / SUMMARY)["summary"])

    def numbers(self, place: Triple) -> NDArray[np.uint64]:
        """Return the number of the object of each fragment of a tile, after 0 for none."""
        found, name = _settled(self.folder / SUMMARY), _name(place)
        start, count = found["starts"][name], found["sizes"][name]
        return np.fromfile(self.folder / NUMBERS, np.uint64, count, offset=8 * start)

    def has_bonds(self, place: Triple) -> bool:
        """Return whether it is known what lies between the fragments of a tile."""
        return self._file(place, "bonds").is_file()

    def write_bonds(self, place: Triple, bonds: Bonds) -> None:
        """Keep what lies between the fragments of a tile."""
        write_whole(self._file(place, "bonds"), lambda file: np.savez(file, **vars(bonds)))

    def bonds(self, place: Triple) -> Bonds:
        """Return what lies between the fragments of a tile."""
        return Bonds(**_loaded(self._file(place, "bonds")))

    def has_grown(self, place: Triple) -> bool:
        """Return whether the labels of a tile are grown."""
        return self._file(place, "grown").is_file()

    def write_grown(self, place: Triple, labels: Labels, numbers: NDArray[np.uint64]) -> None:
        """Keep the grown labels of a tile, and the number of the object of each, after 0 for none."""
        sizes = np.bincount(labels.reshape(-1), minlength=len(numbers)).astype(np.int64)
        arrays: dict[str, Any] = {"labels": _narrow(labels), "numbers": numbers, "sizes": sizes}
        path = self._file(place, "grown")
        write_whole(path, lambda file: np.savez_compressed(file, **arrays))

    def grown(self, place: Triple) -> tuple[NDArray[Any], NDArray[np.uint64]]:
        """Return the grown labels of a tile, and the number of the object of each, after 0 for none."""
        path = self._file(place, "grown")
        return self._kept(path), np.asarray(_array_of(path, "numbers"), np.uint64)

    def grown_summary(self, objects: int, places: list[Triple]) -> Summary:
        """Return what came out of so many objects, all of whose tiles are grown."""
        sizes = np.zeros(objects + 1, np.int64)
        for place in places:
            path = self._file(place, "grown")
            np.add.at(sizes, _array_of(path, "numbers").astype(np.int64), _array_of(path, "sizes"))
        return Summary.of(sizes[1:])

    def _kept(self, path: Path) -> NDArray[Any]:
        try:
            return _labels_of(path, _state(path))
        except FileNotFoundError:
            raise _damaged(path) from None

    def _file(self, place: Triple, what: str) -> Path:
        return self.folder / f"{_name(place)}.{what}.npz"

    def _part(self, place: Triple) -> Path:
        return self._file(place, "part")

    def _labels(self, place: Triple) -> Path:
        return self._file(place, "labels")


def _name(place: Triple) -> str:
    return "-".join(map(str, place))


def _narrow(labels: Labels) -> NDArray[Any]:
    return labels.astype(np.min_scalar_type(int(labels.max())))


def _loaded(path: Path, *names: str) -> dict[str, Any]:
    """Return arrays of a file, all if none is named."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names or file.files}
    except (BadZipFile, KeyError, ValueError, EOFError, FileNotFoundError) as error:
        raise _damaged(path) from error


def _array_of(path: Path, name: str) -> NDArray[Any]:
    found: NDArray[Any] = _loaded(path, name)[name]
    return found


def _damaged(path: Path) -> VolumeError:
    return VolumeError(
        f"{path} is damaged or gone; remove the folder {path.parent} to make all tiles anew"
    )


def _state(path: Path) -> tuple[int, int, int]:
    """Return what tells a file from another one that stood there before; times alone may be as coarse as seconds."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


# Blocks that follow each other lie in the same tiles; the state tells those of another job.
@lru_cache(maxsize=4)
def _labels_of(path: Path, state: tuple[int, int, int]) -> NDArray[Any]:
    return _array_of(path, "labels")


@lru_cache(maxsize=1)
def _read(path: Path, state: tuple[int, int, int]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def _settled(path: Path) -> dict[str, Any]:
    return _read(path, _state(path))
