"""What a model is made from: checked settings, losses that suit its outputs, sizes that can be trained, an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from znnpy.config import check_section
from znnpy.config.training_section import RunSection, TrainingSection
from znnpy.engine.communication.exchange import Party
from znnpy.engine.memory.images import Layout
from znnpy.engine.planning import planned_within
from znnpy.engine.report import Report
from znnpy.engine.single import SingleEngine
from znnpy.engine.steps import Settings
from znnpy.errors import ZnnpyError
from znnpy.geometry import Geometry, refuse_single_values
from znnpy.learning.loss import LossKeys
from znnpy.network import Network, objectives
from znnpy.network.outputs import Objectives, refuse_apart
from znnpy.plan import Plan

if TYPE_CHECKING:
    from znnpy.engine.double import DoubleEngine

Precision = Literal["float32", "float64"]


def checked_loss(
    learning: Mapping[str, Any], factors: Mapping[str, float], running: Mapping[str, Any]
) -> LossKeys:
    """The loss's keys, once all settings that a config may hold are what it takes; else ConfigError."""
    outputs = {name: {"weight": factor} for name, factor in factors.items()}
    training = {"output_shape": 1, "outputs": outputs, **learning}
    keys = check_section(TrainingSection, training, "Model").loss
    check_section(RunSection, running, "Model")
    return keys


def weighed_objectives(
    logits: Network, loss: LossKeys, network: Network, factors: Mapping[str, float]
) -> Objectives:
    """What each output of `logits` is for, with factors by node of `network` (1 where there is none)."""
    names = [node.name for node in network.outputs]
    if unknown := sorted(set(factors) - set(names)):
        raise ZnnpyError(f"factors: there is no output {unknown[0]!r}; this network has {names}")
    return objectives(logits, loss, lambda name: factors.get(name, 1.0))


def refuse_untrainable_sizes(
    network: Network, geometry: Geometry, losses: Objectives, microbatch: int
) -> None:
    """NetworkError or ShapeError for sizes with which a loss or a normalisation means nothing."""
    refuse_apart(losses, {name: geometry.output_stride(name) for name in geometry.output_shapes})
    refuse_single_values(network, geometry, microbatch)


def refuse_ranks(precision: Precision, threads: int) -> None:
    """ZnnpyError for what several ranks do not train with."""
    if precision != "float32" or not threads:
        raise ZnnpyError(
            "several ranks train with precision float32 and 1 thread or more each; found "
            f"{precision} and {threads}"
        )


def laid_out(
    sizes: tuple[Network, Geometry, Plan],
    batch: int,
    microbatch: int,
    seed: int,
    workers: int,
    party: Party | None,
    *,
    training: bool,
) -> Layout:
    """The samples that are computed here: those of this rank's microbatches in training, else a batch at once."""
    if not training:
        return Layout(*sizes, batch, False, seed, workers)
    layout = Layout.of_batch(*sizes, batch, microbatch, seed, workers)
    return replace(layout, numbers=party.numbers) if party else layout


def opened(
    layout: Layout, settings: Settings, precision: Precision, report: Report | None
) -> tuple[Layout, SingleEngine | DoubleEngine]:
    """An engine with its memory, and the layout as that was planned; PlanError where there is too little."""
    if precision == "float32":
        memory = planned_within(layout, settings)
        return memory.layout, SingleEngine(memory, settings, report)
    from znnpy.engine.double import DoubleEngine  # with SciPy, which others need not load

    if settings.max_memory is not None:
        planned_within(layout, settings)
    return layout, DoubleEngine(layout, settings)
