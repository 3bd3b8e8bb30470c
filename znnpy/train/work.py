"""What every rank of a run does alike, and a process that trains alone: opens volumes, feeds updates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from math import prod

from znnpy.config.models import Config, VolumeSection
from znnpy.data.sampling.prefetch import Prefetcher
from znnpy.data.sampling.sampler import Sampler
from znnpy.distributed.cores import Place, threads_of
from znnpy.distributed.world import World
from znnpy.engine.model import Model
from znnpy.errors import ConfigError
from znnpy.infer.losses import step_weights
from znnpy.infer.material import open_scene
from znnpy.network.outputs import Objectives
from znnpy.network.types import Network
from znnpy.train.checkpoint import Arrays
from znnpy.train.keeper import Pace
from znnpy.train.loop import Batch
from znnpy.train.members import Member
from znnpy.train.patches import make_sampler


def open_sampler(
    stack: ExitStack,
    config: Config,
    network: Network,
    sections: tuple[VolumeSection, ...],
    key: str,
) -> Sampler:
    """Patches of the volumes that a key of the config names; closed with the stack."""
    if not sections:
        raise ConfigError(f"{key} names no volume; training needs at least one")
    scenes = []
    for section in sections:
        scene = open_scene(section, config.data, network)
        stack.callback(scene.close)
        scenes.append(scene)
    return make_sampler(config, network, scenes, training=key == "data.train")


def resume(model: Model, parameters: Arrays, optimizer_state: Arrays, iteration: int) -> None:
    """Set a model to where a run stands."""
    model.set_parameters(parameters)
    model.set_optimizer_state(optimizer_state)
    model.iteration = iteration


def with_threads(config: Config, members: Sequence[Member], rank: int) -> Config:
    """The config with the threads of one of several ranks, where it names none."""
    if config.run.threads is not None or not members:
        return config
    places = [Place(member["host"], member["cores"]) for member in members]
    run = config.run.model_copy(update={"threads": threads_of(places, rank)})
    return config.model_copy(update={"run": run})


def pace_of(config: Config, model: Model) -> Pace:
    """When things happen in a run."""
    training, run = config.training, config.run
    return Pace(
        iterations=training.iterations,
        batch=training.batch,
        voxels=training.batch * sum(prod(s) for s in model.geometry.output_shapes.values()),
        seed=training.seed,
        log_every=run.log_every,
        validate_every=training.validation.every if config.data.validation else 0,
        save_every=run.checkpoint.every,
        keep=run.checkpoint.keep,
    )


def verify_all(samplers: Iterable[Sampler | None], world: World) -> None:
    """ChangedError unless all that was read is of the files that were opened, by any rank."""
    for sampler in samplers:
        if sampler:
            sampler.verify()
    world.exchange(None)


def loop_batches(batches: Prefetcher, losses: Objectives) -> Iterator[Batch]:
    """Prefetched batches as the loop takes them."""
    for batch in batches:
        weights = step_weights(losses, batch.targets, batch.weights)
        yield Batch(batch.images, batch.targets, weights)
