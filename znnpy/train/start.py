"""Starts a run or takes one up again: settles config, plan, checkpoint and log before any update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from znnpy.config import described_changes, dump, load_config
from znnpy.config.models import Config
from znnpy.errors import RunError
from znnpy.network import Network, build_network
from znnpy.train import checkpoint as checkpoints
from znnpy.train.checkpoint import Checkpoint
from znnpy.train.progress import Reporter
from znnpy.train.records import drop_after, up_to
from znnpy.train.rundir import (
    CONFIG,
    LOG,
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
    """Where a run goes on: its plan and newest checkpoint (None: at the start).

    `validated` is the last iteration whose validation is in the log.
    """

    plan: dict[str, Any] | None
    checkpoint: Checkpoint | None
    validated: int = 0

    @property
    def iteration(self) -> int:
        """Updates done."""
        return self.checkpoint.iteration if self.checkpoint else 0


def look(run: RunDirectory, config: Config, reporter: Reporter) -> Standing:
    """Where a run stands that `config` begins or goes on with; changes nothing on disk.

    RunError names the keys of a config that changed in a way that matters; changed versions and
    damaged checkpoints are noted.
    """
    if not run.started:
        return Standing(None, None)
    _refuse_changes(run, config)
    changed = differences(read_json(run / VERSIONS) or {}, versions(config.training.seed))
    if changed:
        reporter.note(
            f"warning: {', '.join(changed)} since this run began; it may not be bitwise the "
            "same as an undisturbed one"
        )
    checkpoint = checkpoints.newest(run.checkpoints, lambda text: reporter.note(f"warning: {text}"))
    if checkpoint is None and checkpoints.listed(run.checkpoints):
        raise RunError(f"no checkpoint in {run.checkpoints} can be read; start with --overwrite")
    if checkpoint and checkpoint.seed != config.training.seed:
        raise RunError(f"the checkpoints in {run.checkpoints} are of seed {checkpoint.seed}")
    standing = Standing(read_json(run / PLAN), checkpoint)
    records = up_to(run / LOG, standing.iteration)
    validated = max((r["iteration"] for r in records if "validation" in r), default=0)
    return replace(standing, validated=validated)


def take_up(
    run: RunDirectory,
    config: Config,
    standing: Standing,
    plan: dict[str, Any] | None,
    reporter: Reporter,
) -> None:
    """Begin the run or go on with it, once everything that may be refused has been looked at.

    Afterwards the directory holds nothing newer than the checkpoint, and the `plan` of a run that
    has none: the choices that change bits, before the first update.
    """
    if run.started:
        run.refresh(dump(config))
    else:
        run.begin(dump(config), versions(config.training.seed))
    checkpoints.discard_newer(run.checkpoints, standing.iteration)
    damage = drop_after(run / LOG, standing.iteration)
    if damage:
        reporter.note(f"warning: {damage}")
    if standing.plan is None and plan is not None:
        write_json(run / PLAN, plan)


def read_run(path: Path, reporter: Reporter, overrides: Sequence[str] = ()) -> SavedRun:
    """Read a run for prediction; RunError when there is none or it has no checkpoint yet."""
    require_run(path)
    config = load_config(path / CONFIG, overrides)
    checkpoint = checkpoints.newest(
        path / checkpoints.DIRECTORY, lambda text: reporter.note(f"warning: {text}")
    )
    if checkpoint is None:
        raise RunError(f"{path} has no checkpoint yet; `znnpy train` writes them")
    network = build_network(config.network)
    return SavedRun(path, config, network, read_json(path / PLAN), checkpoint)


def _refuse_changes(run: RunDirectory, config: Config) -> None:
    changed = described_changes(load_config(run / CONFIG), config)
    if changed:
        raise RunError(
            f"the run in {run.path} was begun with another config; changed: {_first(changed)}. "
            "Undo that, choose another run.directory, or start anew with --overwrite"
        )


def _first(changed: Sequence[str], count: int = 6) -> str:
    """The first few, and how many more there are."""
    more = len(changed) - count
    return ", ".join(changed[:count]) + (f", and {more} more" if more > 0 else "")
