"""Starts or resumes a run: reads its directory, compares configs, and settles plan, checkpoint and log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from znnpy.config import (
    changes_of_training,
    described,
    described_changes,
    dump,
    load_both,
    load_config,
)
from znnpy.config.models import Config
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.errors import ConfigError, PlanError, RunError
from znnpy.geometry.finest_outputs import finest
from znnpy.infer.config_model import Weights, frozen_of
from znnpy.infer.together import Helpers
from znnpy.learning.optimizers import averaged
from znnpy.network import (
    Network,
    learned,
    network_digest,
    parameter_shapes,
    trained_network,
    training_losses,
)
from znnpy.network.parameters import held
from znnpy.plan import Plan
from znnpy.train import checkpoint as checkpoints
from znnpy.train.best import Best, best_of
from znnpy.train.calibration import Shifts, recalibrated, shifts_of
from znnpy.train.checkpoint import Arrays, Checkpoint, Contents
from znnpy.train.environment import differences, versions
from znnpy.train.first_weights import first_weights
from znnpy.train.log import CHANGED, RunLog, drop_after, up_to
from znnpy.train.looking_ahead import Ahead
from znnpy.train.npz_reader import Kind
from znnpy.train.progress import Reporter
from znnpy.train.run_directory import (
    CONFIG,
    LOG,
    PLAN,
    VERSIONS,
    RunDirectory,
    pin_wisdom,
    read_object,
    require_run,
    write_json,
)

Which = Literal["best", "latest"] | int
"""Which of a run's checkpoints: the best validated, the newest, or that of an iteration."""


@dataclass(frozen=True)
class SavedRun:
    """The content of a run directory, for prediction and evaluation; read without taking its lock.

    `helpers`: others that compute patches of its predictions, if there are any. `contents`: what its checkpoints hold
    and how they are read, those of further members too; None: not known.
    """

    path: Path
    config: Config
    network: Network
    plan: dict[str, Any] | None
    checkpoint: Checkpoint
    shifts: Shifts = field(default_factory=dict)
    helpers: Helpers | None = None
    contents: Contents | None = None

    @property
    def parameters(self) -> Arrays:
        """All weights of the trained network: their moving averages where the config keeps them, recalibrated."""
        found = self.checkpoint.parameters
        # Before the first update there is no average yet.
        if self.config.training.ema and self.checkpoint.iteration:
            frozen = frozen_of(self.config, self.network)
            found = averaged(found, self.checkpoint.optimizer_state, frozen)
        return recalibrated(found, self.shifts) if self.shifts else found

    @property
    def weights(self) -> Weights:
        """Return the trained network for prediction: without coarser outputs, which serve training alone."""
        network = finest(self.network)
        edges = {edge.name for edge in network.edges}
        plan = None if self.plan is None else {k: v for k, v in self.plan.items() if k in edges}
        found = self.parameters
        parameters = {name: found[name] for name in parameter_shapes(network)}
        return Weights(self.config, network, plan, parameters, self.helpers)


@dataclass(frozen=True)
class Standing:
    """The state from which a run starts or resumes: its plan and newest checkpoint (None: at the start).

    `validated` is the last iteration whose validation is in the log, `best` the best of them. `changed`: keys of the
    config with which training goes on another way, in words. `first`: other weights than random ones to begin with.
    """

    plan: dict[str, Any] | None
    checkpoint: Checkpoint | None
    validated: int = 0
    best: Best = field(default_factory=Best)
    changed: str = ""
    first: Checkpoint | None = None

    @property
    def iteration(self) -> int:
        """The number of updates done."""
        return self.checkpoint.iteration if self.checkpoint else 0

    @property
    def state(self) -> Checkpoint | None:
        """The state to go on or begin with; None: random weights."""
        return self.checkpoint or self.first


def look(run: RunDirectory, config: Config, reporter: Reporter) -> Standing:
    """Return where a run stands that `config` starts or resumes; changes nothing on disk.

    Raises RunError with the keys of a config that changed in a way that a run cannot go on with; other changes of
    training, changed versions and damaged checkpoints are noted.
    """
    best = best_of(config, trained_network(config))
    if not run.started:
        _refuse_removed(run, config)
        return Standing(None, None, best=best, first=first_state(config, reporter))
    # The config first: everything after it is read by what it says.
    before = load_config(run / CONFIG)
    _refuse_changes(run, before, config)
    _warn_of_versions(run / VERSIONS, config.training.seed, reporter)
    plan, contents = _plan(run / PLAN, config), contents_of(config)
    checkpoint = checkpoints.newest(
        run.checkpoints, contents, lambda text: reporter.note(f"warning: {text}")
    )
    if checkpoint and checkpoint.seed != config.training.seed:
        raise RunError(f"the checkpoints in {run.checkpoints} are of seed {checkpoint.seed}")
    trained = checkpoint.iteration * config.training.batch if checkpoint else 0
    # Samples would be trained on twice or never; a checkpoint alone cannot say which is right.
    if checkpoint and checkpoint.next_sample != trained:
        raise RunError(
            f"the checkpoint of iteration {checkpoint.iteration} in {run.checkpoints} goes on with sample "
            f"{checkpoint.next_sample}, and batches of {config.training.batch} have come to {trained}; "
            "put the file back, or start anew with --overwrite"
        )
    first = None if checkpoint else first_state(config, reporter)
    standing = Standing(plan, checkpoint, first=first)
    if plan is None and 0 < standing.iteration < config.training.iterations:
        reporter.note(lost(run / PLAN, "algorithms are"))
    # Up to the checkpoint: later validations are cut off with the log and made again.
    records = [r for r in up_to(run / LOG, standing.iteration) if "validation" in r]
    validated = max((r["iteration"] for r in records), default=0)
    best.take(records)
    if best.iteration > 0 and not checkpoints.path_of(run.best, best.iteration).exists():
        # Its weights are lost: the best of those to come is saved.
        best = best_of(config, trained_network(config))
    changed = ", ".join(described(changes_of_training(before, config), before, config))
    if changed and standing.iteration:
        reporter.note(f"from iteration {standing.iteration} on: {changed}")
    return replace(standing, validated=validated, best=best, changed=changed)


def _refuse_removed(run: RunDirectory, config: Config) -> None:
    """Refuse weights to begin with that beginning removes: those of the run that was here before."""
    wanted = config.training.start_from
    # Without checkpoints there was no run, and the weights are looked for in vain.
    if wanted is None or not run.checkpoints.exists():
        return
    path, folders = Path(wanted.weights).resolve(), {run.checkpoints.resolve(), run.best.resolve()}
    if path == run.path.resolve() or {path, path.parent} & folders:
        raise ConfigError(
            f"{config.place('training', 'start_from')}: {wanted.weights} is of the run that --overwrite removes; "
            "choose another run.directory"
        )


def first_state(config: Config, reporter: Reporter) -> Checkpoint | None:
    """Return the state that a run begins with by `training.start_from`, which is noted."""
    contents = contents_of(config)
    found = first_weights(config, trained_network(config), contents)
    if found is None:
        return None
    for text in found.notes():
        reporter.note(text)
    # As the optimiser begins.
    states = {
        name: np.zeros(kind.shape, kind.dtype) for name, kind in contents.optimizer_state.items()
    }
    return Checkpoint(
        0, found.parameters, states, config.training.full_rate, config.training.seed, 0
    )


def take_up(
    run: RunDirectory,
    config: Config,
    standing: Standing,
    plan: dict[str, Any] | None,
    reporter: Reporter,
) -> None:
    """Start or resume the run on disk, once everything that may be refused has been checked.

    Afterwards the directory holds nothing newer than the checkpoint, and, for a run without one, the `plan`: the
    choices that change bits, before the first update.
    """
    if run.started:
        _note_changes(run / LOG, standing)
        run.refresh(dump(config))
    else:
        run.begin(dump(config), versions(config.training.seed))
    # Damaged ones, that is: intact newer checkpoints would have been resumed from.
    for directory in (run.checkpoints, run.best):
        checkpoints.discard_newer(directory, standing.iteration)
    damage = drop_after(run / LOG, standing.iteration)
    if damage:
        reporter.note(f"warning: {damage}")
    if standing.plan is None and plan is not None:
        write_json(run / PLAN, plan)


def _note_changes(log: Path, standing: Standing) -> None:
    """Write into the log what changed in the config, from which iteration on; also what changed after that one.

    Before the config is replaced, by which changes are seen: what a killed process has noted is there already.
    """
    here = standing.iteration
    noted = [(it["iteration"], it[CHANGED]) for it in up_to(log, 1 << 62) if CHANGED in it]
    # Of a start from a newer checkpoint, which cannot be read now; it holds from here on.
    later = [text for iteration, text in noted if iteration > here]
    changed = ", ".join(dict.fromkeys([*later, *([standing.changed] if standing.changed else [])]))
    if changed and here and (here, changed) not in noted:
        drop_after(log, here)
        with RunLog(log) as file:
            file.write({"iteration": here, CHANGED: changed})
            file.sync()


def read_run(
    path: Path,
    reporter: Reporter,
    overrides: Sequence[str] = (),
    which: Which = "latest",
    *,
    states: bool = True,
    in_file: bool = False,
    ahead: Ahead | None = None,
) -> SavedRun:
    """Read a run for prediction, with some keys of its config overridden, but none of the network.

    `which`: its newest checkpoint, the best one, or that of an iteration. `states`: also the optimiser's states, which
    are as large as the weights or larger; else only where weights are made of them. `in_file`: large weights of runs of
    scans (`data.prepare`) stay in their file; `ahead`: those that are looked through already. Raises RunError when
    there is no run, it has no such checkpoint yet, or its network would be another.
    """
    require_run(path)
    # Compared with the file itself: overrides may change how a prediction is made, never what is
    # predicted with.
    trained, config = load_both(path / CONFIG, overrides)
    changed = [key for key in described_changes(trained, config) if key.startswith("network.")]
    if changed:
        raise RunError(
            f"{path} was trained with another network; changed: {_first(changed)}; undo that"
        )
    plan = _plan(path / PLAN, trained)
    averages = config.training.ema is not None  # which are calculated
    contents = replace(
        contents_of(trained),
        states=states or averages,
        in_file=in_file and config.data.prepare is not None and not averages,
        ahead=ahead,
    )
    checkpoint = _saved(path, contents, which, reporter)
    # Weights that were taken over have no plan before they are trained.
    if plan is None and checkpoint.iteration:
        reporter.note(lost(path / PLAN, "algorithms are"))
    # Before anybody plans an FFT for this run.
    pin_wisdom(path, reporter.note)
    network = trained_network(config)
    # The first weights have not learned any shift.
    shifts = shifts_of(path, config, network) if checkpoint.iteration else {}
    return SavedRun(path, config, network, plan, checkpoint, shifts, contents=contents)


def _saved(path: Path, contents: Contents, which: Which, reporter: Reporter) -> Checkpoint:
    def warn(text: str) -> None:
        reporter.note(f"warning: {text}")

    if which == "best":
        return checkpoints.best(path, contents, warn)
    if which != "latest":
        return checkpoints.of_iteration(path, which, contents)
    found = checkpoints.newest(path / checkpoints.DIRECTORY, contents, warn)
    if found is None:
        raise RunError(f"{path} has no checkpoint yet; `znnpy train` writes them")
    return found


def lost(path: Path, what: str) -> str:
    """Return the warning that a file with choices of a run with checkpoints, which begins with its path, is gone."""
    return (
        f"warning: {path} is lost, {what} chosen anew; the bits may differ from those of an "
        "undisturbed run"
    )


def contents_of(config: Config) -> Contents:
    """Return what checkpoints of this config's training hold."""
    training, dtype = config.training, np.dtype(config.training.precision)
    network = trained_network(config)
    # Running variances: a negative one in a file would become NaN under the root.
    squares = {name for node in network.nodes for name, it in held(node).items() if not it.negative}
    kinds = {
        name: Kind(shape, dtype, name not in squares)
        for name, shape in parameter_shapes(network).items()
    }
    optimizer = Optimizer.trained(training)
    states = {
        f"{name}/{state}": replace(kinds[name], negative=state not in optimizer.entry.squares)
        for name in learned(network)
        for state in optimizer.state_names
    }
    losses = training_losses(config, network)
    # Logits and probabilities have weights of the same names and shapes and mean different things.
    meant = " ".join(losses[node.name].reading.name for node in network.outputs)
    return Contents(kinds, states, f"{network_digest(network)} {meant}")


def _plan(path: Path, config: Config) -> dict[str, Any] | None:
    """Return a run's plan; raises RunError when it is not one of its network."""
    record = read_object(path)
    if record is None:
        return None
    try:
        Plan.from_record(record, trained_network(config))
    except PlanError as error:
        raise RunError(
            f"{path} is damaged: {error}; put the file back, or start anew with --overwrite"
        ) from error
    return record


def _warn_of_versions(path: Path, seed: int, reporter: Reporter) -> None:
    try:
        changed = differences(read_object(path) or {}, versions(seed))
    except RunError as error:
        reporter.note(f"warning: {error}; whether versions changed since this run began is unknown")
        return
    if changed:
        reporter.note(
            f"warning: {', '.join(changed)} since this run began; it may not be bitwise the "
            "same as an undisturbed one"
        )


def _refuse_changes(run: RunDirectory, before: Config, config: Config) -> None:
    changed = described_changes(before, config)
    if changed:
        raise RunError(
            f"the run in {run.path} was begun with another config; changed: {_first(changed)}. "
            "Undo that, choose another run.directory, or start anew with --overwrite"
        )


def _first(changed: Sequence[str], count: int = 6) -> str:
    """Return the first few keys as text, and how many more there are."""
    more = len(changed) - count
    return ", ".join(changed[:count]) + (f", and {more} more" if more > 0 else "")
