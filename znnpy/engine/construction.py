"""Constructs a model step by step: checks, losses, shapes, plan, memory, engine (float32 or float64)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from znnpy.engine.arguments import Arguments, Record
from znnpy.engine.autotune import planned
from znnpy.engine.float32_engine import SingleEngine
from znnpy.engine.kept.graphs import planned as planned_or_kept
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.limits import refuse_hopeless
from znnpy.engine.memory_planning import planned_within
from znnpy.engine.progress import Report
from znnpy.engine.settings import Precision
from znnpy.engine.step_tasks import Settings
from znnpy.engine.tasks.declaration import uncollected
from znnpy.errors import NetworkError, ZnnpyError
from znnpy.geometry import Geometry, fit, refuse_single_values
from znnpy.layers.types import EdgeKindName
from znnpy.lazily import lazily
from znnpy.network import Network, load_network, logits_network, objectives
from znnpy.network.folding import folded
from znnpy.network.freezing import frozen
from znnpy.network.objectives import Objectives, refuse_apart, refuse_untrainable
from znnpy.plan import Plan

if TYPE_CHECKING:
    from znnpy.engine import emit
    from znnpy.engine.communication import gradient_exchange
    from znnpy.engine.communication.gradient_exchange import Party
    from znnpy.engine.float64_engine import DoubleEngine
else:
    emit = lazily("znnpy.engine.emit")
    gradient_exchange = lazily("znnpy.engine.communication.gradient_exchange")


@dataclass(frozen=True)
class Made:
    """The parts of a model.

    `network`: as written. `run`: as the engine runs it, without the activation functions that losses apply. `folds`:
    in `run`, batch normalisations are folded into filters. `microbatch`: samples of one microbatch.
    """

    network: Network
    run: Network
    folds: bool
    losses: Objectives
    geometry: Geometry
    microbatch: int
    plan: Plan
    settings: Settings
    layout: Layout
    engine: SingleEngine | DoubleEngine


def made(given: Any, output_shape: Any, arguments: Arguments) -> Made:
    """Return all parts of a model; what cannot be is refused before planning, which may take long."""
    learning, training = arguments.learning, arguments.training
    network = load_network(given)
    _refuse_other_outputs(network, arguments)
    if training:
        refuse_untrainable(network, arguments.losses)
    logits = logits_network(network, arguments.losses)
    # Folding rounds filters once more, and running statistics still move in training; so prediction
    # alone folds.
    run = logits if training else folded(logits)
    factors = arguments.factors
    losses = objectives(run, arguments.losses, lambda name: factors.get(name, 1.0))
    # Refused in the order of what it costs to find out: kernels, sizes, ranks, memory, and only
    # then plans.
    if learning.precision == "float32":
        _refuse_without_tasks(network)
        if training:
            _refuse_without_kernel(losses)
            _ = arguments.optimizer.kernel
    # Shapes are those of the network as written; folding and logits change none.
    geometry, party = fit(network, output_shape), None
    microbatch = learning.at_once
    if training:
        _refuse_untrainable_sizes(network, geometry, losses, microbatch)
        _refuse_ranks(arguments)
        microbatches = learning.batch // microbatch
        if arguments.ranks is not None:
            of = gradient_exchange.Party.of
            alike = _alike(arguments, geometry)
            party = of(arguments.ranks, microbatches, run, arguments.distributed, alike)
    # Inputs are staged for the samples of this rank alone.
    own = len(party.numbers) * microbatch if party else learning.batch
    settings, sizes = _settings(network, losses, arguments, party), (network, geometry, microbatch)
    limit, states = settings.max_memory, settings.states
    # Planning declares every task, which takes minutes for a network that no machine holds.
    refuse_hopeless(*sizes, training, limit, staged=own, states=states)
    # The plan comes before the layout: which algorithms run decides which nodes lie planar.
    plan = _planned(run, geometry, microbatch, arguments, party)
    layout = _laid_out((run, geometry, plan), microbatch, arguments, party)
    layout, engine = _opened(layout, settings, learning.precision, arguments.report)
    return Made(
        network,
        run,
        run is not logits,
        losses,
        geometry,
        microbatch,
        plan,
        settings,
        layout,
        engine,
    )


def _refuse_other_outputs(network: Network, arguments: Arguments) -> None:
    """Raise ZnnpyError for factors or losses of outputs that there are not, and for factors that are all 0."""
    names, factors = [node.name for node in network.outputs], arguments.factors
    losses = arguments.losses if isinstance(arguments.losses, Mapping) else {}
    for key, given in (("training.factors", factors), ("loss", losses)):
        if unknown := sorted(set(given) - set(names)):
            raise ZnnpyError(f"{key}: there is no output {unknown[0]!r}; this network has {names}")
    if arguments.training and not any(factors.get(name, 1.0) for name in names):
        raise ZnnpyError("training.factors: all are 0, so that nothing is learned")


def _refuse_without_tasks(network: Network) -> None:
    """Raise NetworkError for an edge of a kind that float64 alone knows, before anything is planned."""
    for edge in network.edges:
        if edge.kind not in get_args(EdgeKindName):  # each of which has tasks
            emit.emitter_of(edge)


def _refuse_without_kernel(losses: Objectives) -> None:
    """Raise NetworkError for an output whose loss float64 alone has."""
    for name, objective in losses.items():
        if objective.kernel is None:
            what = f"output {name!r}: loss {objective.loss.name} has no kernel in float32"
            raise NetworkError(f"{what}; precision float64 runs it")


def _refuse_untrainable_sizes(
    network: Network, geometry: Geometry, losses: Objectives, microbatch: int
) -> None:
    """Raise NetworkError or ShapeError for sizes with which a loss or a normalisation is meaningless."""
    strides = {name: geometry.output_stride(name) for name in geometry.output_shapes}
    refuse_apart(losses, strides, geometry.output_shapes)
    refuse_single_values(network, geometry, microbatch)


def _refuse_ranks(arguments: Arguments) -> None:
    """Raise ZnnpyError for settings that several ranks do not support."""
    if arguments.ranks is None or arguments.ranks.size == 1:
        return
    precision, threads = arguments.learning.precision, arguments.threads
    if precision != "float32" or not threads:
        raise ZnnpyError(
            "several ranks train with precision float32 and 1 thread or more each; found "
            f"{precision} and {threads}"
        )


def _alike(arguments: Arguments, geometry: Geometry) -> dict[str, Any]:
    """Return what ranks must have been given alike, JSON-able."""
    return {
        **arguments.learning.model_dump(mode="json", exclude={"output_shape"}),
        **{f"output {name}": shape for name, shape in geometry.output_shapes.items()},
        "optimizer": str(arguments.optimizer),
    }


def _planned(
    run: Network, geometry: Geometry, microbatch: int, arguments: Arguments, party: Party | None
) -> Plan:
    """Return the given plan or a chosen one; on every rank that of rank 0."""

    def plan_as(record: Record | None) -> Plan:
        return planned(
            run,
            geometry,
            microbatch,
            arguments.learning.conv,
            record,
            arguments.training,
            arguments.report,
            max_memory=arguments.running.max_memory,
        )

    return party.planned(arguments.plan, plan_as) if party else plan_as(arguments.plan)


def _settings(
    network: Network, losses: Objectives, arguments: Arguments, party: Party | None
) -> Settings:
    running = arguments.running
    freeze = arguments.learning.freeze if arguments.training else ()
    return Settings(
        losses,
        arguments.optimizer,
        arguments.learning.clip_norm,
        arguments.threads,
        running.policy,
        running.steal_seed,
        arguments.record,
        running.max_memory,
        party,
        frozen(network, freeze, lambda index: f"Model: freeze.{index}"),
    )


def _laid_out(
    sizes: tuple[Network, Geometry, Plan],
    microbatch: int,
    arguments: Arguments,
    party: Party | None,
) -> Layout:
    """Return the layout of the samples computed here: this rank's microbatches in training, else the whole batch."""
    learning, workers = arguments.learning, max(1, arguments.threads)
    cut_for = arguments.cut_for or 0
    if not arguments.training:
        return Layout(
            *sizes,
            learning.batch,
            False,
            learning.seed,
            workers,
            cut_for=cut_for,
            lean=arguments.lean,
        )
    layout = Layout.of_batch(*sizes, learning.batch, microbatch, learning.seed, workers)
    layout = replace(layout, cut_for=cut_for)
    return replace(layout, numbers=party.numbers) if party else layout


@uncollected()
def _opened(
    layout: Layout, settings: Settings, precision: Precision, report: Report | None
) -> tuple[Layout, SingleEngine | DoubleEngine]:
    """Return an engine with its memory, and the layout as planned; PlanError if there is too little memory."""
    if precision == "float32":
        memory = planned_or_kept(layout, settings)
        return memory.layout, SingleEngine(memory, settings, report)
    from znnpy.engine.float64_engine import DoubleEngine  # with SciPy, which others need not load

    # Float64 reserves nothing by plan, but a limit that float32 refuses is refused here, too.
    if settings.max_memory is not None:
        planned_within(layout, settings)
    return layout, DoubleEngine(layout, settings)
