"""Trains a config from start to end: `train(config)` opens or resumes the run, trains, evaluates. Rank 0 runs it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from znnpy.config.models import Config
from znnpy.data.config_volumes import of_values, open_scene
from znnpy.data.process_memory import kept_no_longer, readable, share_memory
from znnpy.data.sampling.prefetch import Float32
from znnpy.data.sampling.sampler import Sampler
from znnpy.distributed.world import World
from znnpy.engine.model import Model
from znnpy.errors import RunError, ZnnpyError
from znnpy.evaluation.volume import Evaluation, refuse_labels
from znnpy.geometry.finest_outputs import finest, trained_geometry
from znnpy.infer.config_model import frozen_of, training_model
from znnpy.infer.tiling import Tiling, unused_windows
from znnpy.network import (
    doubtful_outputs,
    losses_of,
    self_contained,
    trained_network,
    training_losses,
)
from znnpy.network.dense_conversion import densest
from znnpy.plan.choose import left_out
from znnpy.train.averages import by_averages
from znnpy.train.best import metric_of
from znnpy.train.calibration import (
    Shifts,
    found_shifts,
    keep_shifts,
    kept_shifts,
    recalibrated_outputs,
    remark,
)
from znnpy.train.consensus import CommonStop, for_others, state_as_bytes, with_microbatch
from znnpy.train.display.finished import show_finished
from znnpy.train.display.live import Display, display_of
from znnpy.train.display.tensorboard import refuse_missing
from znnpy.train.drift import Drift
from znnpy.train.environment import Member, member, refuse_mixed, share_host
from znnpy.train.final_evaluation import evaluate_run, held_out, is_scored, spoken, write_result
from znnpy.train.first_weights import keep_origin
from znnpy.train.known_volumes import keep, known, known_to_all, tell_changed
from znnpy.train.labelled_window import with_window
from znnpy.train.learning_rate import learning_rate
from znnpy.train.log import RunLog, up_to
from znnpy.train.loop import Loop
from znnpy.train.patch_sources import open_sampler
from znnpy.train.progress import Reporter, choose_reporter
from znnpy.train.run_directory import (
    FFTW,
    LOG,
    RESULT,
    TIMINGS,
    RunDirectory,
    keep_wisdom,
    pin_wisdom,
)
from znnpy.train.run_writer import RunKeeper
from znnpy.train.shards import PeriodicSource, Shards, Whole, training_source
from znnpy.train.shared_forward import SharedForward
from znnpy.train.shared_prediction import helpers_of
from znnpy.train.signals import Stop, StopSignals
from znnpy.train.start import Standing, contents_of, look, lost, read_run, take_up
from znnpy.train.update_driver import loop_batches, pace_of, resume, verify_all, with_threads
from znnpy.train.validation import Validation
from znnpy.train.watch import Watch


@dataclass(frozen=True)
class Outcome:
    """Result of `train`: how far the run is; `signal` is the number of the signal that stopped it, or None.

    `early`: whether training ended before all iterations, as validations were no longer better.
    """

    directory: Path
    iteration: int
    iterations: int
    signal: int | None
    evaluations: tuple[Evaluation, ...] = ()
    early: bool = False

    @property
    def finished(self) -> bool:
        """Whether all iterations are done, or as many as were worth it."""
        return self.early or self.iteration >= self.iterations


def train(
    config: Config,
    *,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    world: World | None = None,
    different_cpus: bool = False,
) -> Outcome:
    """Train until done or stopped by SIGINT, SIGTERM or SIGHUP; resumes a run that exists.

    `world`: this process is rank 0 of it, and the others `follow`; `different_cpus` as in `refuse_mixed`.
    Call from the main thread to have signals handled. Raises ZnnpyError subclasses for errors that the
    user can mend, TrainingError for NaN or Inf, Stopped for a signal before training begins.
    """
    reporter, config = reporter or choose_reporter(), self_contained(config)
    world = world or World()
    with StopSignals() as stop, RunDirectory.open(config.run.directory, overwrite=overwrite) as run:
        # The order of what follows is that of `follow` on the other ranks: each exchange here meets
        # one there.
        members = world.exchange(member()) if world.size > 1 else []
        share_host(members, world.rank)
        refuse_mixed(members, different_cpus=different_cpus)
        config = with_window(with_microbatch(config, run, world, reporter), run, reporter)
        # Changes nothing on disk: all that may be refused comes before `take_up`.
        standing = look(run, config, reporter)
        outcome = _Session(run, config, standing, reporter, stop, world, members).run()
        world.broadcast(None)  # for which the others wait
        return outcome


class _Session:
    """The parts of one call of `train`."""

    def __init__(
        self,
        run: RunDirectory,
        config: Config,
        standing: Standing,
        reporter: Reporter,
        signals: StopSignals,
        world: World,
        members: list[Member],
    ) -> None:
        self._run, self._config, self._standing = run, config, standing
        self._reporter, self._world, self._members = reporter, world, members
        self._signals = signals
        self._stop: Stop = signals if world.size == 1 else CommonStop(signals, world)
        self._network = trained_network(config)
        self._losses = training_losses(config, self._network)
        self._errors = not of_values(config, self._network)
        self._display: Display | None = None
        self._first: Mapping[str, Float32] = {}  # images of a sample, by node

    def run(self) -> Outcome:
        training, done, best = self._config.training, self._standing.iteration, self._standing.best
        for text in doubtful_outputs(
            self._network, losses_of(self._config, self._network)
        ) + left_out(training, self._network):
            self._reporter.note(f"warning: {text}")
        if self._left():
            # Tells the others to train; None tells them that there is nothing left to do.
            begun = self._standing.checkpoint is not None
            told = [done, begun, self._standing.validated, for_others(self._config)]
            self._world.broadcast(told)
            with ExitStack() as stack:
                done = self._train(stack)
        else:
            self._world.broadcast(None)
            take_up(self._run, self._config, self._standing, None, self._reporter)
            more = "training.validation.patience" if best.enough else "training.iterations"
            self._reporter.note(
                f"this run is finished, {done} iterations are done; raise {more} to "
                "train on, or start anew with --overwrite"
            )
        # A signal may have cut the last validation short, which the next start makes.
        stopped = self._stop.requested or self._signals.requested
        if stopped or (done < training.iterations and not best.enough):
            return Outcome(self._run.path, done, training.iterations, stopped, (), best.enough)
        found = self._finish(done)
        state = "ended early" if best.enough else "finished"
        show_finished(self._run.path, self._config, state, self._reporter.note)
        return Outcome(self._run.path, done, training.iterations, None, found, best.enough)

    def _left(self) -> bool:
        """Whether anything is left to train, or to validate: a signal may have come just before the end."""
        standing, done = self._standing, self._standing.iteration
        if standing.best.enough:
            return False
        unvalidated = bool(self._config.data.validation) and standing.validated < done
        return done < self._config.training.iterations or unvalidated

    def _train(self, stack: ExitStack) -> int:
        """Train; first open everything that may be refused, before the run directory changes."""
        trained_geometry(self._config, self._network)  # names the line, as what follows does not
        frozen_of(self._config, self._network)  # so does this
        refuse_missing(self._config)
        data, scored = self._config.data, finest(self._network)
        # Opens the training volumes and draws one sample: what fails, fails before anything is
        # compiled or written.
        source = self._source(stack)
        shifts = self._shifts(source)
        validation = (
            open_sampler(stack, self._config, self._network, data.validation, "data.validation")
            if data.validation
            else None
        )
        # Of blocks each rank holds others, dealt anew.
        volumes = None
        if isinstance(source, Whole):
            hosts = [it["host"] for it in self._members]
            volumes = known_to_all(source.scenes, self._world, hosts)
            volumes |= known((), validation.scenes if validation else ())
            tell_changed(self._run, volumes, self._reporter)
        # A wrong name or size shall not show after days of training.
        for section in held_out(self._config):
            unread = data.model_copy(update={"in_memory": False})
            with kept_no_longer(), closing(open_scene(section, unread, self._network)) as scene:
                refuse_labels(self._config, self._network, scene)
                Tiling.of(self._config, scored).field_of(scene, self._config)
        predicted = densest(scored)
        Tiling.of(self._config, predicted).words()  # refuses an impossible window
        for text in unused_windows(self._config, predicted):
            self._reporter.note(f"warning: {text}")
        if self._world.size > 1:
            self._tell_state()
        # Plans, measures and compiles, which may take minutes; everything that can be refused
        # quickly has been.
        model = stack.enter_context(self._model())
        # The directory changes only once every rank has come as far.
        self._world.exchange("ready")
        take_up(self._run, self._config, self._standing, model.plan_record, self._reporter)
        keep_shifts(self._run.path, shifts)
        if volumes is not None:
            keep(self._run, volumes)
        keep_origin(self._run.path, self._config, self._network)
        if (
            keep_wisdom(self._run.path, model.plan)
            and self._standing.plan
            and self._standing.iteration
        ):
            self._reporter.note(lost(self._run / FFTW, "FFTs are"))
        self._display = display_of(
            self._run.path,
            self._config,
            self._network,
            self._standing.iteration,
            self._reporter.note,
            self._first,
        )
        return self._loop(stack, model, source, validation).run()

    def _finish(self, done: int) -> tuple[Evaluation, ...]:
        path, sections = self._run.path, held_out(self._config)
        if is_scored(path, done, sections):
            self._reporter.note(f"its scores are in {path / RESULT}")
            return ()
        self._reporter.note(spoken(self._config))
        if not sections:
            return ()
        saved = read_run(path, self._reporter)
        if self._world.size > 1:
            config = with_threads(saved.config, self._members, 0)
            saved = replace(saved, config=config, helpers=helpers_of(self._world, saved.config))
        share_memory(1)  # the other ranks have let go of theirs, and have a model of patches alone
        evaluations = evaluate_run(saved, sections)
        try:
            write_result(path, saved.checkpoint.iteration, sections, evaluations)
        except ZnnpyError as error:
            raise RunError(
                f"{error}; all {done} iterations are trained and saved, the same command scores them"
            ) from error
        return tuple(evaluations)

    def _model(self) -> Model:
        standing, config = self._standing, with_threads(self._config, self._members, 0)
        # Before the model plans its FFTs.
        if self._run.started:
            pin_wisdom(self._run.path, self._reporter.note)
        model = training_model(
            config,
            self._network,
            standing.plan,
            report=self._reporter.preparing,
            ranks=self._world,
        )
        planned = f"updates take {readable(model.memory)} of memory"
        if model.microbatch < model.batch:
            planned += (
                f", microbatches: {model.batch // model.microbatch}, {model.in_flight} in flight"
            )
        strategy = model.strategy
        ranks = f", ranks: {self._world.size}, strategy: {strategy.name}" if strategy else ""
        kept = ", tasks as an earlier start has connected them" if model.connected_before else ""
        self._reporter.note(f"{planned}, threads: {model.threads}{ranks}{kept}")
        if found := standing.state:
            resume(model, found.parameters, found.optimizer_state, found.iteration)
        return model

    def _tell_state(self) -> None:
        """Send the state that the run starts from to the other ranks."""
        state, contents = self._standing.state, contents_of(self._config)
        self._world.broadcast(state and state_as_bytes(state, contents))

    def _loop(
        self, stack: ExitStack, model: Model, source: PeriodicSource, validation: Sampler | None
    ) -> Loop:
        config, run, standing = self._config, self._run, self._standing
        training, pace = config.training, pace_of(config, model)
        batches = loop_batches(source, self._losses, training.batch, model.iteration, model.samples)
        keeper = RunKeeper(
            run.checkpoints,
            (stack.enter_context(RunLog(run / LOG)), stack.enter_context(RunLog(run / TIMINGS))),
            pace,
            partial(learning_rate, training),
            self._reporter,
            standing.checkpoint.iteration if standing.checkpoint else -1,
            partial(verify_all, [source, validation], self._world),
            self._stop.timings,
            partial(self._world.exchange, None),
            best=standing.best,
            network=contents_of(config).network,
            errors=self._errors,
            apart=training.losses_apart,
            display=self._display,
            drift=Drift(up_to(run / LOG, model.iteration)),
        )
        return Loop(
            model,
            stack.enter_context(closing(batches)),
            pace,
            partial(learning_rate, training),
            keeper,
            self._stop,
            self._validation(model, validation),
            standing.validated,
            self._world,
            self._watch(),
        )

    def _watch(self) -> Watch | None:
        """Return what watches the first updates of a new run."""
        if self._standing.iteration:
            return None
        rate = partial(learning_rate, self._config.training)
        return Watch(self._config, self._network, rate, self._reporter.note, self._world)

    def _validation(self, model: Model, sampler: Sampler | None) -> Validation | None:
        training = self._config.training
        if sampler is None:
            return None
        shared = self._world.size > 1
        return Validation(
            SharedForward(model, self._world) if shared else model.forward,
            sampler,
            self._losses,
            training.batch,
            training.validation.patches,
            self._stop,
            errors=self._errors,
            apart=training.losses_apart,
            metric=metric_of(self._config, self._network),
            during=partial(by_averages, model, self._world) if training.ema else nullcontext,
            seen=self._display.patch_seen if self._display else None,
        )

    def _shifts(self, source: PeriodicSource) -> Shifts:
        """Return the shifts of logits by weighted classes, those that the run has if it has any; says what they do."""
        kept = self._run.started and recalibrated_outputs(self._config, self._network)
        shifts = kept_shifts(self._run.path, self._network) if kept else {}
        # Of blocks each rank holds others: what they show would depend on the number of ranks.
        if not shifts and not isinstance(source, Shards):
            shifts = found_shifts(self._config, self._network, source)
        if text := remark(self._config, self._network, shifts):
            self._reporter.note(text)
        return shifts

    def _source(self, stack: ExitStack) -> PeriodicSource:
        iteration = self._standing.iteration
        source = training_source(stack, self._config, self._network, self._world, iteration)
        # The first sample of the first update: volumes that cannot be read, or hold nothing, show
        # here.
        self._first = source.sample(iteration * self._config.training.batch).images
        if isinstance(source, Shards):
            self._reporter.note(source.described())
        return source
