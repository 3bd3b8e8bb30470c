"""Checkpoints: everything that one iteration needs to go on, as one npz file without pickles."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from znnpy.errors import RunError, reason
from znnpy.train.atomic import sync_directory, write_atomically

Arrays = dict[str, npt.NDArray[Any]]
DIRECTORY = "checkpoints"
FORMAT = 1
_NAME = re.compile(r"iteration-(\d{9})\.npz")
_DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError)


@dataclass(frozen=True)
class Checkpoint:
    """The state after `iteration` updates.

    `parameters` and `optimizer_state` by name, in the model's shapes; `learning_rate` is the next
    update's; `next_sample` the first sample that was not trained on yet (samples are a function
    of `seed` and their number, so no other random state exists).
    """

    iteration: int
    parameters: Arrays
    optimizer_state: Arrays
    learning_rate: float
    seed: int
    next_sample: int


def path_of(directory: Path, iteration: int) -> Path:
    """Where the checkpoint of an iteration lies."""
    return directory / f"iteration-{iteration:09d}.npz"


def save(directory: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint and remove all but the newest `keep`; RunError when the disk is full."""
    path = path_of(directory, checkpoint.iteration)
    arrays = {"meta": np.array(json.dumps(_meta(checkpoint), sort_keys=True))}
    for group in ("parameters", "optimizer_state"):
        for name, array in getattr(checkpoint, group).items():
            arrays[f"{group}/{name}"] = array
    write_atomically(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
    _prune(directory, keep)
    return path


def load(path: Path) -> Checkpoint:
    """Read one checkpoint; RunError when it is damaged (zip CRCs). Nothing is unpickled."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(str(arrays.pop("meta")))
        if meta["format"] != FORMAT:
            raise RunError(f"checkpoint {path} was written by another version of znnpy")
        groups: dict[str, Arrays] = {"parameters": {}, "optimizer_state": {}}
        for name, array in arrays.items():
            group, _, inner = name.partition("/")
            groups[group][inner] = array
        return Checkpoint(
            iteration=meta["iteration"],
            parameters=groups["parameters"],
            optimizer_state=groups["optimizer_state"],
            learning_rate=meta["learning_rate"],
            seed=meta["seed"],
            next_sample=meta["next_sample"],
        )
    except (*_DAMAGE, TypeError) as error:
        raise RunError(f"checkpoint {path} is damaged ({error})") from error


def listed(directory: Path) -> list[Path]:
    """All checkpoints in a directory, newest first."""
    found = [path for path in directory.glob("iteration-*.npz") if _NAME.fullmatch(path.name)]
    return sorted(found, reverse=True)


def newest(directory: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that can be read; damaged ones are skipped with a warning."""
    for path in listed(directory):
        try:
            return load(path)
        except RunError as error:
            warn(f"{error}; trying the one before")
    return None


def check_fits(found: Mapping[str, npt.NDArray[Any]], wanted: Mapping[str, Any], what: str) -> None:
    """Refuse arrays whose names or shapes are not the model's; RunError lists every difference."""
    problems = [f"{name!r} is missing" for name in wanted if name not in found]
    problems += [f"{name!r} is not in the network" for name in found if name not in wanted]
    for name, array in found.items():
        if name in wanted and array.shape != wanted[name].shape:
            problems.append(f"{name!r} has shape {array.shape}, not {wanted[name].shape}")
    if problems:
        raise RunError(f"{what} does not fit this network: " + "; ".join(problems))


def discard_newer(directory: Path, iteration: int) -> None:
    """Remove checkpoints after an iteration, which a resumed run will write again."""
    newer = [path for path in listed(directory) if path > path_of(directory, iteration)]
    _remove(newer, directory)


def _meta(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "iteration": checkpoint.iteration,
        "learning_rate": checkpoint.learning_rate,
        "seed": checkpoint.seed,
        "next_sample": checkpoint.next_sample,
    }


def _prune(directory: Path, keep: int) -> None:
    _remove(listed(directory)[max(1, keep) :], directory)


def _remove(paths: Sequence[Path], directory: Path) -> None:
    if not paths:
        return
    try:
        for path in paths:
            path.unlink()
        sync_directory(directory)
    except OSError as error:
        raise RunError(f"cannot remove old checkpoints in {directory}: {reason(error)}") from error
