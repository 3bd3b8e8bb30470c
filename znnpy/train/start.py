"""Starts a run or takes one up again: settles config, plan, checkpoint and log before any update."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from znnpy.config import changes_that_matter, dump, load_config
from znnpy.config.models import Config
from znnpy.errors import RunError
from znnpy.network import Network, load_network
from znnpy.train import checkpoint as checkpoints
from znnpy.train.atomic import write_atomically, write_text
from znnpy.train.checkpoint import Checkpoint
from znnpy.train.log import drop_after
from znnpy.train.progress import Reporter
from znnpy.train.rundir import (
    CONFIG,
    LOG,
    NETWORK,
    PLAN,
    VERSIONS,
    RunDirectory,
    read_json,
    require_run,
    write_json,
)
from znnpy.train.versions import differences, versions


@dataclass(frozen=True)
class SavedRun:
    """What a run directory holds, for prediction and evaluation; read without taking its lock."""

    path: Path
    config: Config
    network: Network
    plan: dict[str, Any] | None
    checkpoint: Checkpoint


@dataclass(frozen=True)
class Standing:
    """Where a run goes on: its plan, newest checkpoint (None: at the start), and kept log records."""

    plan: dict[str, Any] | None
    checkpoint: Checkpoint | None
    records: list[dict[str, Any]]

    @property
    def validated(self) -> int:
        """Last iteration whose validation is in the log."""
        return max((r["iteration"] for r in self.records if "validation" in r), default=0)


def take_up(run: RunDirectory, config: Config, reporter: Reporter) -> Standing:
    """Begin a new run, or check that `config` goes on with the one that is there.

    Afterwards the directory holds nothing newer than the checkpoint. RunError names the keys of a
    config that changed in a way that matters; changed versions and damaged checkpoints are noted.
    """
    found = versions(config.training.seed)
    if run.started:
        _refuse_changes(run, config)
        changed = differences(read_json(run / VERSIONS) or {}, found)
        if changed:
            reporter.note(
                f"warning: {', '.join(changed)} since this run began; it may not be bitwise the "
                "same as an undisturbed one"
            )
        _write_config(run, config)
    else:
        _write_network(run, config)
        run.begin(dump(config), found)
    checkpoint = checkpoints.newest(run.checkpoints, lambda text: reporter.note(f"warning: {text}"))
    if checkpoint is None and checkpoints.listed(run.checkpoints):
        raise RunError(f"no checkpoint in {run.checkpoints} can be read; start with --overwrite")
    if checkpoint and checkpoint.seed != config.training.seed:
        raise RunError(f"the checkpoints in {run.checkpoints} are of seed {checkpoint.seed}")
    iteration = checkpoint.iteration if checkpoint else 0
    checkpoints.discard_newer(run.checkpoints, iteration)
    plan = read_json(run / PLAN)
    return Standing(plan, checkpoint, drop_after(run / LOG, iteration))


def read_run(path: Path, warn: Reporter, overrides: list[str] | None = None) -> SavedRun:
    """Read a run for prediction; RunError when there is none or it has no checkpoint yet."""
    require_run(path)
    config = load_config(path / CONFIG, overrides or ())
    checkpoint = checkpoints.newest(
        path / checkpoints.DIRECTORY, lambda text: warn.note(f"warning: {text}")
    )
    if checkpoint is None:
        raise RunError(f"{path} has no checkpoint yet; `znnpy train` writes them")
    return SavedRun(path, config, run_network(path, config), read_json(path / PLAN), checkpoint)


def run_network(path: Path, config: Config) -> Network:
    """The run's network: the copy of a ZNN file that was made when it began, else the config's."""
    copy = path / NETWORK
    return load_network(copy if copy.exists() else config.network)


def _refuse_changes(run: RunDirectory, config: Config) -> None:
    changed = changes_that_matter(load_config(run / CONFIG), config)
    if not changed and config.network.znn is not None:
        same = (run / NETWORK).read_bytes() == config.network.znn.read_bytes()
        changed = [] if same else [f"network.znn (the contents of {config.network.znn})"]
    if changed:
        raise RunError(
            f"the run in {run.path} was begun with another config; changed: {', '.join(changed)}. "
            "Undo that, choose another run.directory, or start anew with --overwrite"
        )


def _write_config(run: RunDirectory, config: Config) -> None:
    text = dump(config)
    if (run / CONFIG).read_text(encoding="utf-8") != text:
        write_text(run / CONFIG, text)
    run.checkpoints.mkdir(exist_ok=True)


def _write_network(run: RunDirectory, config: Config) -> None:
    if config.network.znn is not None:
        content = config.network.znn.read_bytes()
        write_atomically(run / NETWORK, lambda file: file.write(content))


def write_plan(run: RunDirectory, plan: dict[str, Any]) -> None:
    """Save the choices that change bits, before the first update."""
    write_json(run / PLAN, plan)
