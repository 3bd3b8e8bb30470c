"""Saves and loads checkpoints: weights and optimiser state of one iteration in one npz file, without pickle."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from znnpy.atomic_files import explained, sync, write_whole
from znnpy.errors import RunError, reason
from znnpy.train.looking_ahead import Ahead
from znnpy.train.npz_reader import DAMAGE, LARGE, Archive, Kind, differences

Arrays = dict[str, npt.NDArray[Any]]
DIRECTORY = "checkpoints"
BEST = "best"  # the folder of checkpoints that validated best so far
MEMBERS = "members"  # of a run that was taken over: folders of further members' weights
RUN_CONFIG = "config.yaml"  # of a run, beside these
FORMAT = 1  # raised when files change so that older versions cannot read them
# Begin the names of arrays in the file; a name is `group/name`.
GROUPS = ("parameters", "optimizer_state")
# Nine digits, so that names sort as iterations do.
_NAME = re.compile(r"iteration-(\d{9})\.npz")


@dataclass(frozen=True)
class Contents:
    """The arrays that a run's checkpoints must hold, each with shape and dtype, and the digest of their network.

    `states`: whether the optimiser's are read; of others only names, shapes and dtypes are looked at. `in_file`:
    whether large parameters are left in the file (`FileArray`), checked as all are. `ahead`: checkpoints that
    are looked through for that already.
    """

    parameters: Mapping[str, Kind]
    optimizer_state: Mapping[str, Kind]
    network: str = ""
    states: bool = True
    in_file: bool = False
    ahead: Ahead | None = None

    def opened(self, path: Path) -> Archive:
        """Open a checkpoint; raises errors of `DAMAGE`."""
        return self.ahead.opened(path) if self.ahead and self.in_file else Archive(path)

    def members(self) -> dict[str, Kind]:
        """Return the kinds of all arrays by their names in the file."""
        return {
            f"{group}/{name}": kind
            for group in GROUPS
            for name, kind in getattr(self, group).items()
        }


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after `iteration` updates.

    `parameters` and `optimizer_state` by name, in the model's shapes; `learning_rate` is that of the next
    update; `next_sample` the first sample that was not trained on yet (samples are a function of `seed` and
    their number, so there is no other random state). `network`: the digest of the trained network and of what
    its outputs mean; "" in files of versions that kept none.
    """

    iteration: int
    parameters: Arrays
    optimizer_state: Arrays
    learning_rate: float
    seed: int
    next_sample: int
    network: str = ""


class OtherNetworkError(RunError):
    """A checkpoint holds weights of a network other than the one it is loaded into."""


def path_of(directory: Path, iteration: int) -> Path:
    """Return the path of the checkpoint of an iteration."""
    return directory / f"iteration-{iteration:09d}.npz"


def save(directory: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint and remove all but the newest `keep`; raises RunError when the disk is full."""
    path = _write(directory, checkpoint)
    # After the new one is durable: at no moment is there none.
    _prune(directory, keep)
    return path


def save_best(directory: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint that validated best so far beside those before it; RunError when the disk is full."""
    with explained(directory, RunError):
        directory.mkdir(exist_ok=True)
        sync(directory.parent)
    _write(directory, checkpoint)


def prune_best(directory: Path, kept: Path) -> None:
    """Remove all best checkpoints but those that were the best when one of the checkpoints in `kept` was saved.

    So a run that goes on from any of these has the best one of that time.
    """
    found, saved = listed(directory), listed(kept)
    wanted = {next((path for path in found if path.name <= it.name), None) for it in saved}
    newest = saved[0].name if saved else ""
    _remove([path for path in found if path.name <= newest and path not in wanted], directory)


def _write(directory: Path, checkpoint: Checkpoint) -> Path:
    path = path_of(directory, checkpoint.iteration)
    # A text is an array as well: the whole checkpoint is one file, which is written or is not.
    arrays = {"meta": np.array(json.dumps(_meta(checkpoint), sort_keys=True))}
    for group in GROUPS:
        for name, array in getattr(checkpoint, group).items():
            arrays[f"{group}/{name}"] = np.ascontiguousarray(array)
    with explained(path, RunError):
        write_whole(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
    return path


def load(path: Path, contents: Contents) -> Checkpoint:
    """Load one checkpoint; raises RunError if it is damaged, OtherNetworkError if it is of another network.

    Nothing in the file is trusted: arrays are read only when all have the names, shapes and dtypes of `contents`;
    values must be finite, and running means of squares not below 0.
    """
    try:
        with contents.opened(path) as file:
            meta = _read_meta(file.text("meta"), path)
            # Before names and shapes: another network may have the same ones, and if not, this
            # message is the better one.
            _refuse_other(meta["network"], contents.network, path)
            members = contents.members()
            found = {name: kind for name, kind in file.kinds.items() if name != "meta"}
            problems = differences(found, members)
            if problems:
                raise RunError(f"checkpoint {path} does not fit this network: {problems}")
            groups: dict[str, Arrays] = {group: {} for group in GROUPS}
            for name in file.kinds:
                group, _, inner = name.partition("/")
                if name in members and (contents.states or group != "optimizer_state"):
                    large = group == "parameters" and members[name].nbytes >= LARGE
                    read: Callable[..., Any] = (
                        file.in_file if large and contents.in_file else file.array
                    )
                    groups[group][inner] = read(name, negative=members[name].negative)
        return Checkpoint(**{**meta, **groups})
    except DAMAGE as error:
        raise RunError(f"checkpoint {path} is damaged ({reason(error)})") from error


def listed(directory: Path) -> list[Path]:
    """Return all checkpoints of a directory, newest first."""
    found = [path for path in directory.glob("iteration-*.npz") if _NAME.fullmatch(path.name)]
    return sorted(found, reverse=True)


def newest(directory: Path, contents: Contents, warn: Callable[[str], None]) -> Checkpoint | None:
    """Load the newest checkpoint that can be read; skip others with a warning; None where there is none.

    Raises RunError where none can be read, OtherNetworkError where one is of another network.
    """
    paths = listed(directory)
    found = _first_readable(paths, contents, warn)
    if paths and not found:
        raise RunError(f"no checkpoint in {directory} can be read; train anew with --overwrite")
    return found


def best(run: Path, contents: Contents, warn: Callable[[str], None]) -> Checkpoint:
    """Load the checkpoint of a run that validated best; skip damaged ones with a warning; RunError if there is none.

    Those after the newest checkpoint do not count: what was trained since then is not saved, and may not be trusted.
    """
    paths = _bests(run)
    found = _first_readable(paths, contents, warn)
    if found is None:
        why = "can be read" if paths else "is saved yet; validations of data.validation choose it"
        raise RunError(f"no best checkpoint of {run} {why}; the newest one is latest")
    return found


def of_iteration(run: Path, iteration: int, contents: Contents) -> Checkpoint:
    """Load the checkpoint of an iteration; RunError, which names those that there are, if there is none."""
    return load(_path_in(run, iteration), contents)


def path_in(run: Path, which: str | int) -> Path:
    """Return the path of a run's checkpoint, latest, best or of an iteration; RunError if there is none."""
    if isinstance(which, int):
        return _path_in(run, which)
    paths = _bests(run) if which == "best" else listed(run / DIRECTORY)
    if not paths:
        raise RunError(f"{run} has no {which} checkpoint")
    return paths[0]


def look_ahead(run: Path, which: str | int) -> Ahead | None:
    """Return a run's checkpoint, latest, best or of an iteration, whose parameters are looked through from now on.

    And those of its further members, after it. Meant for `Contents.ahead`. None where there is no such checkpoint,
    which whoever loads it will say, and where the config, as runs write it, prepares no scans or keeps averages: such
    weights are read to memory.
    """
    with suppress(RunError, OSError, RuntimeError):  # the last where no thread is to be had
        config = (run / RUN_CONFIG).read_bytes()
        if _has(config, b"data", b"prepare") and not _has(config, b"training", b"ema"):
            own = path_in(run, which)
            return Ahead([own, *members_beside(run, own)], GROUPS[0])
    return None


def members_beside(run: Path, own: Path) -> list[Path]:
    """Return the checkpoints of a run's members beside its own one; none where that was trained since."""
    if own.name != path_of(run, 0).name:
        return []
    folders = sorted((run / MEMBERS).glob("[0-9]*"))
    return [path for folder in folders if (path := path_of(folder, 0)).exists()]


def _has(config: bytes, section: bytes, key: bytes) -> bool:
    """Return whether a config has a key in a section, as runs write them: a line each, unset ones left out.

    Not by the reader of configs, whose modules take as long to load as is to be gained here. Of a config that was
    written by hand a wrong answer costs that time, and nothing else: what is read follows from the config itself.
    """
    return re.search(rb"^%b:\n(?: .*\n)*?  %b:" % (section, key), config, re.MULTILINE) is not None


def _path_in(run: Path, iteration: int) -> Path:
    folders = (run / DIRECTORY, run / BEST)
    for folder in folders:
        if (path := path_of(folder, iteration)).exists():
            return path
    names = {path.name for folder in folders for path in listed(folder)}
    known = sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))
    raise RunError(
        f"{run} has no checkpoint of iteration {iteration} (there are: {', '.join(map(str, known))})"
    )


def _bests(run: Path) -> list[Path]:
    saved = listed(run / DIRECTORY)
    return [path for path in listed(run / BEST) if saved and path.name <= saved[0].name]


def _first_readable(
    paths: Sequence[Path], contents: Contents, warn: Callable[[str], None]
) -> Checkpoint | None:
    for number, path in enumerate(paths):
        try:
            found = load(path, contents)
        # Older checkpoints are of that other network as well: skipping this one would not help.
        except OtherNetworkError:
            raise
        except RunError as error:
            warn(f"{error}; trying the one before")
            continue
        if number:
            first = "" if found.iteration else ", with which the run began"
            warn(f"weights of iteration {found.iteration} are taken{first}")
        return found
    return None


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
        "network": checkpoint.network,
    }


def _prune(directory: Path, keep: int) -> None:
    # At least one stays, whatever the config says.
    _remove(listed(directory)[max(1, keep) :], directory)


def _read_meta(text: str, path: Path) -> dict[str, Any]:
    """Return the numbers of a checkpoint; ValueError for impossible ones, RunError for those of another version."""
    meta = json.loads(text)
    if not isinstance(meta, dict):
        raise ValueError("its numbers are no JSON object")
    if meta.get("format") != FORMAT:
        raise RunError(f"checkpoint {path} was written by another version of znnpy")
    for name in ("iteration", "seed", "next_sample"):
        # `type`, not isinstance: JSON's true is an int to Python. 64 bits are what samples are
        # numbered by.
        if type(meta.get(name)) is not int or not 0 <= meta[name] < 1 << 64:
            raise ValueError(f"{name} is {str(meta.get(name))[:40]!r}, not a whole number")
    rate: Any = meta.get("learning_rate")
    if type(rate) not in (int, float) or not 0 <= rate < math.inf:
        raise ValueError(f"learning_rate is {str(rate)[:40]!r}, not a finite number from 0 on")
    if not isinstance(meta.setdefault("network", ""), str):
        raise ValueError(f"network is {str(meta['network'])[:40]!r}, not a text")
    # A copied or renamed file would be resumed at the wrong iteration.
    if path != path_of(path.parent, meta["iteration"]):
        raise ValueError(f"it is of iteration {meta['iteration']}, which its name does not say")
    names = ("iteration", "seed", "next_sample", "learning_rate", "network")
    return {name: meta[name] for name in names}


def _refuse_other(found: str, wanted: str, path: Path) -> None:
    # Files of older versions have no digest; names and shapes alone are compared then.
    if found and wanted and found != wanted:
        raise OtherNetworkError(
            f"checkpoint {path} has weights of another network than {path.parent.parent / RUN_CONFIG} describes: "
            "the config was edited since, or another version of znnpy builds it otherwise; put it back as it was, "
            "or train anew with --overwrite"
        )


def _remove(paths: Sequence[Path], directory: Path) -> None:
    if not paths:
        return
    try:
        for path in paths:
            path.unlink()
        sync(directory)
    except OSError as error:
        raise RunError(f"cannot remove old checkpoints in {directory}: {reason(error)}") from error
