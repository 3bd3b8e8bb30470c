"""Settles how many samples of a batch are computed at once where a config says `training.microbatch: auto`."""

from __future__ import annotations

from znnpy.config.models import Config
from znnpy.distributed.reduction_tree import largest_microbatch
from znnpy.engine.autotune import planned
from znnpy.engine.kept.choices import kept_choice
from znnpy.engine.kept.keys import Choosing
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.limits import refuse_hopeless
from znnpy.engine.microbatch_choice import chosen_microbatch
from znnpy.engine.step_tasks import Settings
from znnpy.geometry import trained_geometry
from znnpy.infer.plan_limits import pinned_plan, plan_room
from znnpy.learning.dice import OverlapKeys
from znnpy.network import training_losses
from znnpy.network.types import Network
from znnpy.scheduler.core_count import available_cores


def indivisible(config: Config, network: Network) -> str | None:
    """Return what takes statistics over the samples of a microbatch, so that smaller ones compute something else."""
    for node in network.nodes:
        if node.norm is not None and node.norm.kind == "batch":
            return f"node {node.name!r} normalises"
    for name, objective in training_losses(config, network).items():
        if isinstance(objective.keys, OverlapKeys) and objective.keys.batch:
            return f"{config.loss_key(name)} takes one fraction"
    return None


def with_microbatch_chosen(
    config: Config, network: Network, ranks: int = 1, workers: int = 0
) -> Config:
    """Return the config with a number for `training.microbatch: auto`; itself if it has one.

    By `workers` (0: those of the config, or all cores) on each rank, and memory. `network`: the config's
    `trained_network`. Where statistics are over the samples of a microbatch it is the whole batch. Raises
    DistributedError for more ranks than samples.
    """
    training = config.training
    if training.microbatch != "auto":
        return config
    largest = largest_microbatch(training.batch, ranks)
    sizes = [size for size in range(largest, 0, -1) if training.batch % size == 0]
    if indivisible(config, network) or len(sizes) == 1 or training.precision != "float32":
        chosen = sizes[0]
    else:
        chosen = _by_forecast(config, network, sizes, ranks, workers)
    return config.model_copy(
        update={"training": training.model_copy(update={"microbatch": chosen})}
    )


def _by_forecast(
    config: Config, network: Network, sizes: list[int], ranks: int, workers: int
) -> int:
    training, run = config.training, config.run
    geometry, pinned = trained_geometry(config, network), pinned_plan(config, network)
    threads, optimizer = workers or run.threads or available_cores(), Optimizer.trained(training)
    states = len(optimizer.state_names)
    choice = Choosing(
        network, geometry, training.batch, tuple(sizes), ranks, training.conv, pinned
    )  # fmt: skip

    with plan_room(config, network) as most:

        def layout_of(size: int) -> Layout:
            at_once = network, geometry, size
            # A rank's share of the microbatches.
            own = -(-training.batch // size // ranks) * size
            refuse_hopeless(*at_once, True, most, staged=own, states=states)
            plan = planned(*at_once, training.conv, pinned, measuring=False, max_memory=most)
            return Layout.of_batch(network, geometry, plan, own, size, training.seed, threads)

        settings = Settings(
            training_losses(config, network),
            optimizer,
            training.clip_norm,
            threads,
            run.policy,
            max_memory=most,
        )
        return kept_choice(choice, settings, lambda: chosen_microbatch(layout_of, settings, sizes))
