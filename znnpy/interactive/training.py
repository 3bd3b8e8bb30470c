"""Trains from a Python session: `znnpy.train`."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from znnpy.config import Config, config_from, load_config
from znnpy.distributed.launcher import announced
from znnpy.errors import ArgumentError, RunError
from znnpy.interactive.progress import reporter_here
from znnpy.interactive.run import Run, open_run
from znnpy.train.session import train as run_session
from znnpy.train.signals import Stopped


def train(
    config: Mapping[str, Any] | str | Path | Config,
    *,
    overrides: Sequence[str] = (),
    overwrite: bool = False,
    quiet: bool = False,
) -> Run:
    """Train a network, or go on with a run that was stopped, as `znnpy train` does; returns the run.

    `config`: keys and values as in a YAML file, whose relative paths count from the current folder; the path of such
    a file; or a loaded config. `overrides`: `KEY=VALUE`, as `--set` has them. `overwrite`: start anew. `quiet`: no bar.
    Ctrl-C, or a notebook's stop button, saves and raises KeyboardInterrupt; the same call goes on. Raises ConfigError
    and its kin (ZnnpyError) for what the command refuses.
    """
    if announced() != 1:
        raise RunError(
            "znnpy.train is done by one process, and several were started; over ranks: mpiexec -n N znnpy train CONFIG"
        )
    loaded = _loaded(config, overrides)
    try:
        outcome = run_session(loaded, overwrite=overwrite, reporter=reporter_here(quiet=quiet))
    except Stopped as error:
        _interrupt(error.signal, f"{error} before training began; the same call begins anew")
    if outcome.signal is not None:
        _interrupt(
            outcome.signal,
            f"stopped at iteration {outcome.iteration} of {outcome.iterations}, saved in {outcome.directory}; the same "
            "call goes on",
        )
    return open_run(outcome.directory)


def _loaded(config: object, overrides: Sequence[str]) -> Config:
    if isinstance(config, Config):
        if overrides:
            raise ArgumentError("overrides: go with a mapping or a file, not with a loaded config")
        return config
    if isinstance(config, Mapping):
        return config_from(config, Path.cwd(), overrides)
    if isinstance(config, str | Path):
        return load_config(config, overrides)
    raise ArgumentError(
        f"config: must be a mapping, the path of a YAML file or a Config; found {type(config).__name__}"
    )


def _interrupt(number: int, words: str) -> NoReturn:
    """End as Python does at this signal."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt(words)
    raise SystemExit(128 + number)
