"""Weights that a run begins with: those of another run or file, their names mapped by patterns (`training.start_from`).

Nothing in the file is trusted: arrays are read only when name, shape and type are those of a parameter here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from znnpy.config.models import Config
from znnpy.errors import ConfigError, RunError, reason
from znnpy.learning.optimizers import AVERAGE
from znnpy.network import Network, initial_parameters
from znnpy.network.parameters import parameter_shapes
from znnpy.train.checkpoint import Arrays, Contents, path_in
from znnpy.train.npz_reader import DAMAGE, Archive
from znnpy.train.run_directory import CONFIG, ORIGIN, read_object, write_json

_GROUP = "parameters/"  # begins the names of weights in a checkpoint
_STATES = "optimizer_state/"  # and of what the optimiser keeps
_SHOWN = 8  # names in a line


@dataclass(frozen=True)
class FirstWeights:
    """All parameters of a network to begin with; `missing` are random as ever, `unused` are arrays left in the file."""

    path: Path
    parameters: Arrays
    missing: tuple[str, ...]
    unused: tuple[str, ...]

    def notes(self) -> list[str]:
        """Return lines for users: how many were found, and which not."""
        taken = len(self.parameters) - len(self.missing)
        lines = [f"begins with {taken} of {len(self.parameters)} parameters from {self.path}"]
        if self.missing:
            lines.append(f"warning: not there, and random: {_few(self.missing)}")
        if self.unused:
            lines.append(f"warning: there, and not used: {_few(self.unused)}")
        return lines


def first_weights(config: Config, network: Network, contents: Contents) -> FirstWeights | None:
    """Return the weights that `training.start_from` names; None without one.

    `contents`: of the checkpoints of the run that begins. Raises ConfigError with the line of the config for a file
    that is none, is damaged, or holds other shapes.
    """
    wanted = config.training.start_from
    if wanted is None:
        return None
    place = config.place("training", "start_from")
    try:
        path = _file(wanted.weights, wanted.checkpoint)
        with Archive(path) as file:
            found, unused = _read(file, wanted.rename, contents)
    except DAMAGE as error:
        raise ConfigError(f"{place}: {wanted.weights} cannot be read ({reason(error)})") from error
    except RunError as error:
        raise ConfigError(f"{place}: {error}") from error
    if not found:
        raise ConfigError(
            f"{place}: {path} holds nothing by the name of a parameter here ({_few(tuple(contents.parameters))}); it "
            f"has {_few(unused)}; start_from.rename maps names"
        )
    drawn = initial_parameters(network, config.training.seed)
    parameters = {
        name: found.get(name, drawn[name]).astype(kind.dtype)
        for name, kind in contents.parameters.items()
    }
    missing = tuple(name for name in parameters if name not in found)
    return FirstWeights(path, parameters, missing, unused)


def keep_origin(run: Path, config: Config, network: Network) -> None:
    """Have a run whose weights began as another's say the same class as that one, if it has the same parameters.

    So weights that were taken over from a class and trained on go back by its names.
    """
    wanted = config.training.start_from
    if wanted is None or wanted.rename or not (origin := wanted.weights / ORIGIN).is_file():
        return
    with Archive(_file(wanted.weights, wanted.checkpoint)) as file:
        theirs = {name: file.kinds[member].shape for name, member in _members(file).items()}
    if theirs == parameter_shapes(network):
        write_json(run / ORIGIN, read_object(origin))


def _file(path: Path, checkpoint: str | int) -> Path:
    if (path / CONFIG).is_file():
        return path_in(path, checkpoint)
    if not path.is_file():
        raise RunError(f"{path} is neither a run directory nor a file")
    return path


def _read(
    file: Archive, rename: Mapping[str, str | None], contents: Contents
) -> tuple[Arrays, tuple[str, ...]]:
    """Return the arrays of parameters by their names here, and the names there of those that are not used."""
    found: Arrays = {}
    origin: dict[str, str] = {}
    unused = []
    for theirs, member in _members(file).items():
        ours = renamed(theirs, rename)
        if ours is None or ours not in contents.parameters:
            unused.append(theirs)
            continue
        if ours in origin:
            raise RunError(f"{origin[ours]!r} and {theirs[:60]!r} there both become {ours!r} here")
        kind, wanted = file.kinds[member], contents.parameters[ours]
        if kind.shape != wanted.shape:
            raise RunError(
                f"{theirs[:60]!r} has shape {kind.shape} there, and {ours!r} {wanted.shape} here; start_from.rename: "
                f"{{{theirs[:60]}: null}} leaves it out"
            )
        if kind.dtype.kind != "f" or kind.dtype.itemsize > 8:
            raise RunError(f"{theirs[:60]!r} is of {kind.dtype.name}, no floating-point numbers")
        found[ours] = file.array(member, negative=wanted.negative)
        # The average of what was frozen never begins; others are 0 everywhere only where the weights are.
        if member.startswith(_STATES) and not found[ours].any():
            found[ours] = file.array(_GROUP + theirs, negative=wanted.negative)
        if not np.isfinite(found[ours].astype(wanted.dtype)).all():
            raise RunError(f"{theirs[:60]!r} has values beyond those of {wanted.dtype.name}")
        origin[ours] = theirs
    return found, tuple(unused)


def _members(file: Archive) -> dict[str, str]:
    """Return the names of weights, and of the arrays that hold them: averages, where a checkpoint has them."""
    weights = [name for name in file.kinds if name.startswith(_GROUP)]
    if not weights:
        return {name: name for name in file.kinds}
    # Before the first update averages are 0.
    meta = json.loads(file.text("meta"))
    if not isinstance(meta, dict):
        raise ValueError("its numbers are no JSON object")
    begun = meta.get("iteration", 0) != 0
    found = {name.removeprefix(_GROUP): name for name in weights}
    averages = {name: f"{_STATES}{name}/{AVERAGE}" for name in found}
    return {
        name: averages[name] if begun and averages[name] in file.kinds else member
        for name, member in found.items()
    }


def renamed(name: str, rename: Mapping[str, str | None]) -> str | None:
    """Return the name here of a parameter there, by the first pattern that fits; None if it is left out."""
    for pattern, new in rename.items():
        start, star, end = pattern.partition("*")
        long_enough = len(name) >= len(start) + len(end)
        if star and long_enough and name.startswith(start) and name.endswith(end):
            text = name[len(start) : len(name) - len(end)]
            return None if new is None else new.replace("*", text)
        if name == pattern:
            return new
    return name


def _few(names: tuple[str, ...]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(name[:60] for name in names[:_SHOWN]) + (
        f" and {more} more" if more > 0 else ""
    )
