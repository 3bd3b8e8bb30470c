"""Writes an imported model as a run directory: config, weights as they begin a run, and further members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from znnpy.config import config_from, dump
from znnpy.config.models import Config
from znnpy.errors import ConfigError, ModelFileError
from znnpy.interop.model import Arrays, ImportedModel
from znnpy.interop.source import is_model, read_model
from znnpy.train import checkpoint as checkpoints
from znnpy.train.checkpoint import Checkpoint, Contents
from znnpy.train.environment import versions
from znnpy.train.members import member_folder
from znnpy.train.run_directory import CONFIG, ORIGIN, RunDirectory, write_json
from znnpy.train.start import contents_of


@contextmanager
def run_of(path: Path) -> Iterator[Path]:
    """Yield a run directory: the path, or one that is made of a model of another program and removed at the end."""
    if (path / CONFIG).exists() or not is_model(path):
        yield path
        return
    with TemporaryDirectory(prefix="znnpy-") as folder:
        write_run(read_model(path), Path(folder) / "run")
        yield Path(folder) / "run"


def write_run(
    model: ImportedModel, path: Path, *, overwrite: bool = False, overrides: Sequence[str] = ()
) -> Config:
    """Write a run directory and return its config; all weights are read and checked before anything is written.

    `overrides`: what the model does not say, each `dotted.key=value`; a mistake there is a ConfigError. The first
    member is the run's checkpoint after 0 updates; others lie beside it (`train/members.py`). Raises RunError where
    something is in the way.
    """
    values = {**model.config, "run": {"directory": str(path.absolute())}}
    try:
        config = config_from(values, path.parent)
    except ConfigError as error:
        raise ModelFileError(f"{model.title} cannot be said as a config: {error}") from error
    if overrides:
        begun, config = config, config_from(values, path.parent, overrides)
        if config.run.directory != begun.run.directory:
            raise ConfigError(f"--set run.directory: the run is written to {path}; leave it out")
    contents = contents_of(config)
    for read in [*model.members.values()][1:]:
        _refuse_other(read(), contents, model.title)
    first, *others = model.members.values()
    weights = first()
    _refuse_other(weights, contents, model.title)
    with RunDirectory.open(path, overwrite=overwrite) as run:
        if run.started:
            raise ModelFileError(f"{path} holds a run already; choose another, or add --overwrite")

        def fill(new: Path) -> None:
            if model.origin is not None:
                write_json(new / ORIGIN, model.origin)
            (new / checkpoints.DIRECTORY).mkdir()
            checkpoints.save(new / checkpoints.DIRECTORY, _beginning(weights, contents, config), 1)
            for number, read in enumerate(others, start=1):
                folder = member_folder(new, number)
                folder.mkdir(parents=True, exist_ok=True)
                checkpoints.save(folder, _beginning(read(), contents, config), 1)

        # A run with some of its members would predict as if there were no others.
        run.begin(dump(config), versions(config.training.seed), fill)
    return config


def _beginning(weights: Arrays, contents: Contents, config: Config) -> Checkpoint:
    """Return the state of a run that begins with these weights."""
    parameters = {
        name: np.asarray(weights[name], kind.dtype) for name, kind in contents.parameters.items()
    }
    states = {
        name: np.zeros(kind.shape, kind.dtype) for name, kind in contents.optimizer_state.items()
    }
    rate, seed = config.training.full_rate, config.training.seed
    return Checkpoint(0, parameters, states, rate, seed, 0, contents.network)


def _refuse_other(weights: Arrays, contents: Contents, title: str) -> None:
    for name, kind in contents.parameters.items():
        if name not in weights or weights[name].shape != kind.shape:
            raise ModelFileError(f"{title}: its weights have no {name} of shape {kind.shape}")
