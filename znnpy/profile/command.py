"""Runs a profile: records updates or forward passes for each number of threads, and writes report and traces.

Also counts the operations of an update by task, as each algorithm counts its own.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from znnpy.atomic_files import write_text
from znnpy.config.models import Config
from znnpy.distributed.core_shares import Place, threads_of
from znnpy.distributed.reduction_tree import largest_microbatch
from znnpy.distributed.world import World
from znnpy.engine import Model
from znnpy.engine.convolution.flops import Operations, of_convolution
from znnpy.engine.convolution.passes import CONV_EMITTERS
from znnpy.engine.memory.layout import Layout
from znnpy.engine.progress import Report
from znnpy.engine.settings import MOST_EVENTS
from znnpy.engine.tasks.task_identity import PASS_OF
from znnpy.errors import PlanError
from znnpy.infer.config_model import patch_model, training_model
from znnpy.infer.microbatch import with_microbatch_chosen
from znnpy.infer.patch_search import Candidate
from znnpy.network import Network, trained_network
from znnpy.network.types import Triple
from znnpy.plan import PASSES
from znnpy.plan.cost import convolutions
from znnpy.profile.advice import advise
from znnpy.profile.graphviz import write_dot
from znnpy.profile.machine import OtherMachine, describe_machine
from znnpy.profile.recorded_updates import (
    Profile,
    events_needed,
    profile_predictions,
    profile_updates,
)
from znnpy.profile.reliability import find_doubts
from znnpy.profile.report import write_report
from znnpy.profile.roofline import roofline
from znnpy.profile.simulation import (
    MANY,
    count_memory,
    memory_of,
    simulate_changes,
    simulate_policies,
    simulate_ranks,
    simulate_runs,
)
from znnpy.profile.sum_strategies import compare_sums
from znnpy.profile.summary import summarise
from znnpy.profile.trace import write_trace
from znnpy.scheduler.core_count import available_cores
from znnpy.simulate import Figures, Links

WARM_UP = 2  # updates: one of each parity, as both copies of a step have data of their own


def convolution_flops(model: Model) -> dict[str, float]:
    """Return the operations of one pass of each conv edge by direct convolution, for this rank's samples."""
    layout = _layout(model, len(model.samples))
    return {
        edge.name: of_convolution(layout.conv_shape(edge)) for edge in convolutions(model.network)
    }


def flops_by_task(model: Model) -> Operations:
    """Return the operations of all like tasks together, in this rank's part of an update, where they are known."""
    # Counted once over algorithms and passes: shared tasks would appear in several.
    layout, counted = _layout(model, model.microbatch), set[object]()
    count = len(model.samples) // model.microbatch
    found: Operations = defaultdict(float)
    for edge in convolutions(model.network):
        for name, emitter in CONV_EMITTERS.items():
            passes = [which for which in PASSES if layout.algorithm(edge, which) == name]
            if passes:
                for task, flops in emitter.operations(layout, edge, passes, counted).items():
                    found[task] += count * flops
    return dict(found)


def _layout(model: Model, batch: int) -> Layout:
    return Layout(model.network, model.geometry, model.plan, batch, training=True)


@dataclass(frozen=True)
class Wishes:
    """Options of a profile: updates a run, thread counts (one run each), policies to compare.

    A run on one worker always comes first: without it nobody knows whether tasks get slower. `ranks`:
    numbers of ranks to simulate, one row each, with messages as `links` says. `machine`: another one, on whose cores
    an update is predicted.
    """

    updates: int = 10
    threads: tuple[int, ...] = ()
    policies: tuple[str, ...] = ()
    arrows: bool = False
    full_graph: bool = False
    ranks: tuple[int, ...] = ()
    links: Links = field(default_factory=Links)
    machine: OtherMachine | None = None


class Subject:
    """The model to profile: makes models that record, with one plan for all of them.

    `report` is told of planning and compilation, `note` of each run. `world`: the ranks that share each
    update; all must make the same records.
    """

    what, many = "update", "updates"

    def __init__(
        self,
        config: Config,
        network: Network,
        report: Report | None = None,
        note: Callable[[str], None] | None = None,
        world: World | None = None,
    ) -> None:
        self.world = world or World()
        self.config, self.network = with_microbatches(config, network, self.world.size), network
        self.report, self.note = report, note
        self.plan: Mapping[str, Any] | None = None

    def record(self, threads: int, policy: str, updates: int) -> tuple[Profile, Model]:
        """Return a profile, and the model (closed) that it was made with."""
        run = self.config.run.model_copy(update={"threads": threads, "policy": policy})
        config = self.config.model_copy(update={"run": run})
        # A model that records nothing first: only with its graph is known how many events there will be.
        with self._model(config, 0) as model:
            needed, self.plan = events_needed(model, updates + WARM_UP), model.plan_record
        if needed > MOST_EVENTS:
            each = needed // (updates + WARM_UP)
            raise PlanError(
                f"--updates {updates}: a {self.what} is {each:,} tasks, and at most {MOST_EVENTS:,} are recorded; "
                f"give at most {max(1, MOST_EVENTS // each - WARM_UP):,}"
            )
        # Told now: recording takes seconds to minutes.
        if self.note:
            workers = f"{threads} worker{'s' * (threads > 1)}"
            cores = available_cores()
            beyond = f" on {cores} core{'s' * (cores > 1)}" if threads > cores else ""
            self.note(f"recording {updates} {self.many}: {workers}{beyond}, policy {policy}")
        with self._model(config, needed) as model:
            return self._profile(model, updates), model

    def _model(self, config: Config, record: int) -> AbstractContextManager[Model]:
        # Cut for many, so that recordings on all numbers of threads, and simulations of more, have the same tasks.
        return training_model(
            config, self.network, self.plan, record, self.report, self.world, cut_for=MANY
        )

    def _profile(self, model: Model, updates: int) -> Profile:
        return profile_updates(model, updates, WARM_UP, self.world)


class PredictionSubject(Subject):
    """Forward passes of one output patch (z, y, x), with the plan that a prediction would choose."""

    what, many = "forward pass", "forward passes"

    def __init__(
        self,
        config: Config,
        network: Network,
        patch: Triple,
        report: Report | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(config, network, report, note)
        self._patch = patch
        self.plan = Candidate(network, patch, config.training.conv).plan.to_record()

    def _model(self, config: Config, record: int) -> AbstractContextManager[Model]:
        return patch_model(
            config, self.network, self._patch, self.plan, record, self.report, cut_for=MANY
        )

    def _profile(self, model: Model, updates: int) -> Profile:
        return profile_predictions(model, updates, WARM_UP)


def profile_config(config: Config, out: Path, wishes: Wishes) -> dict[str, Any]:
    """Profile a config's updates on random data of its sizes; the volumes need not exist.

    Writes report.html, trace-P.json.gz for each number of threads P, trace.json.gz (that of the most),
    summary.json and graph.dot into `out`; returns the summary.
    """
    return profile_subject(Subject(config, trained_network(config)), out, wishes)


def profile_subject(subject: Subject, out: Path, wishes: Wishes) -> dict[str, Any]:
    """Record all runs and write everything; of several ranks rank 0 writes.

    Raises PlanError where ranks cannot be simulated, or `out` is a file.
    """
    if out.exists() and not out.is_dir():
        raise PlanError(f"{out} is a file; --output names a folder for the report and the traces")
    if wishes.ranks:
        _refuse_ranks(subject)
    here = {} if subject.world.rank else describe_machine()
    # Before anything is recorded: a machine that cannot be is refused.
    figures = _figures(wishes.machine, here)
    # The same number on all ranks, since they record together.
    own = subject.config.run.threads or share_of_cores(subject.world)
    # Always with one worker, to which the others are compared.
    counts, policy = sorted({1, *(wishes.threads or (own,))}), subject.config.run.policy
    made = {count: subject.record(count, policy, wishes.updates) for count in counts}
    profile, model = made[counts[-1]]
    seconds = _measure_policies(subject, counts[-1], wishes, profile) if wishes.policies else {}
    # The others have recorded with it; one writes.
    if subject.world.rank:
        return {}
    out.mkdir(parents=True, exist_ok=True)
    summary = _frame(subject, model, here)
    memory = memory_of(made, figures) if figures else None
    other = memory if wishes.machine else None
    summary |= simulate_runs(made, other)
    summary |= _runs(made, summary)
    if not summary["doubts"]:
        if memory:
            counted = count_memory(made, memory)
            summary["roofline"] = roofline(summary["runs"][-1], counted, here["sgemm_gflops"])
        summary["what_if"] = simulate_changes(made, other)
    if wishes.ranks:
        how = subject.config.distributed
        summary["ranks"] = simulate_ranks(
            made, wishes.ranks, wishes.links, how.colors, how.chunk, subject.report
        )
    if wishes.policies:
        summary["policies"] = simulate_policies(made, seconds)
        summary["sums"] = compare_sums(counts[-1])
    for count, (each, _) in made.items():
        write_trace(each, out / f"trace-{count}.json.gz", arrows=wishes.arrows)
    # A copy under a fixed name, for readers who do not care about the number.
    shutil.copyfile(out / f"trace-{counts[-1]}.json.gz", out / "trace.json.gz")
    write_dot(profile, out / "graph.dot", full=wishes.full_graph)
    write_text(out / "summary.json", json.dumps(summary, indent=1))
    write_report(summary, profile, out / "report.html")
    return summary


def with_microbatches(config: Config, network: Network, ranks: int) -> Config:
    """Return the config with the microbatch that a run over ranks would start with, if it names none."""
    config = with_microbatch_chosen(config, network, ranks)
    training = config.training
    if training.microbatch or ranks == 1:
        return config
    cut = training.model_copy(update={"microbatch": largest_microbatch(training.batch, ranks)})
    return config.model_copy(update={"training": cut})


def share_of_cores(world: World) -> int:
    """Return the cores for each rank, the same number for all: they are recorded together."""
    places = [Place(*told) for told in world.exchange(Place.here())]
    return int(min(world.exchange(threads_of(places, world.rank))))


def _refuse_ranks(subject: Subject) -> None:
    if subject.world.size > 1:
        raise PlanError(
            "--ranks simulates ranks from one process; these are measured: leave it out"
        )
    if isinstance(subject, PredictionSubject):
        raise PlanError("ranks are simulated of updates: forward passes have nothing to add up")
    if subject.config.run.policy == "layers":
        raise PlanError(
            "ranks are not simulated with the policy 'layers', whose barriers leave nothing that messages "
            "could overlap; choose another, such as critical-path"
        )


def _figures(asked: OtherMachine | None, here: Mapping[str, Any]) -> Figures | None:
    """Return the figures of the machine that is asked for, or of this one if it tells of its caches."""
    if asked is None and not here.get("caches"):
        return None
    return (asked or OtherMachine()).figures(here) if here else None


def _frame(subject: Subject, model: Model, here: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of the summary that do not depend on the number of threads."""
    outputs = model.geometry.output_shapes.values()
    return {
        "name": subject.config.network.name or "network",
        "what": subject.what,
        "many": subject.many,
        "batch": model.batch,
        "world": subject.world.size,
        "strategy": model.strategy.name if model.strategy else None,
        "microbatch": model.microbatch,
        "output": ", ".join("x".join(map(str, shape)) for shape in outputs),
        "machine": here,
        "layers": [*(edge.name for edge in model.network.edges)],
        "plan": {
            name: {PASS_OF[which]: str(layer.method(which)) for which in PASSES}
            for name, layer in model.plan.layers.items()
        },
        "convolution_flops": convolution_flops(model),
        "flops": {task.label: flops for task, flops in flops_by_task(model).items()},
    }


def _runs(made: Mapping[int, tuple[Profile, Model]], summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return `runs` with their advice, and the `doubts` for which nothing is extrapolated."""
    machine, simulation = summary["machine"], summary["simulation"]
    runs = [
        summarise(profile, flops_by_task(model), None if count == 1 else made[1][0])
        for count, (profile, model) in made.items()
    ]
    alone = summary["world"] == 1  # waits for other ranks are not simulated
    doubts = find_doubts(runs, simulation["error"] if alone else {}, machine["cores"])
    told = [
        run | {"advice": advise(run, machine, simulation, summary["what"], doubts)} for run in runs
    ]
    return {"runs": told, "doubts": doubts}


def _measure_policies(
    subject: Subject, threads: int, wishes: Wishes, known: Profile
) -> dict[str, float]:
    """Return the seconds of an update by each policy."""
    seconds = {}
    for policy in wishes.policies:
        same = policy == subject.config.run.policy
        profile = known if same else subject.record(threads, policy, wishes.updates)[0]
        seconds[policy] = profile.seconds_per_update
    return seconds
