"""How many updates fit into some minutes of training on this machine, by the time of a few of them."""

from __future__ import annotations

from contextlib import ExitStack, closing
from math import prod
from time import monotonic

from znnpy.config.models import Config
from znnpy.data.volume import Triple
from znnpy.distributed.world import World
from znnpy.errors import ConfigError
from znnpy.infer.config_model import training_model
from znnpy.network import self_contained, trained_network, training_losses
from znnpy.train.progress import Reporter
from znnpy.train.shards import training_source
from znnpy.train.update_driver import loop_batches, made_updates

WARM = 4  # updates that are not counted: caches, and threads that begin to prepare
# Updates that are counted at least, for so many seconds, and the most that so many may take.
LEAST, SECONDS, MOST = 3, 5.0, 60.0
FORWARD = 1 / 3  # of an update, which goes back as well
START = 5.0  # seconds until the first update
SCORED = 5e-6  # seconds of a voxel in the final evaluation: objects and their scores take most, whatever the net


def seconds_of_update(config: Config, reporter: Reporter) -> float:
    """Return the seconds that an update of a config takes here, its data included; writes no run.

    Raises ZnnpyError subclasses for what training would refuse.
    """
    config = self_contained(config)
    network = trained_network(config)
    with ExitStack() as stack:
        source = training_source(stack, config, network, World(), 0)
        source.sample(0)  # volumes that cannot be read show before anything is compiled
        model = stack.enter_context(
            training_model(config, network, None, report=reporter.preparing)
        )
        losses, rate = training_losses(config, network), config.training.full_rate
        batches = loop_batches(source, losses, config.training.batch, 0, model.samples)
        ready = stack.enter_context(closing(batches))
        began = 0.0
        for done, _ in enumerate(made_updates(model, ready, lambda _: rate), start=1):
            if done == WARM:
                began = monotonic()
            spent, counted = monotonic() - began, done - WARM
            if counted > 0 and (spent > MOST or (spent > SECONDS and counted >= LEAST)):
                break
        model.drain()
        return spent / counted


def fitting(config: Config, minutes: float, seconds: float, extent: Triple | None) -> int:
    """Return how many updates of so many `seconds` fit beside beginning, validations and the final evaluation.

    `extent`: voxels z, y, x of the volume that validates by some of its slices. Raises ConfigError where none fits.
    """
    training, beside = config.training, START
    for section in config.data.validation:
        first, last = section.slices or (0, extent[0] if extent else 0)
        looks = training.iterations // training.validation.every
        patches = looks * training.validation.patches / training.batch
        beside += FORWARD * patches * seconds
        beside += SCORED * (last - first) * (prod(extent[1:]) if extent else 0)
    found = int((60 * minutes - beside) / seconds)
    if found < 1:
        raise ConfigError(
            f"--minutes {minutes:g} is too short: beside its updates, of {seconds:.2g} s each here, training takes "
            f"about {beside:.0f} s to begin, to validate and to score"
        )
    return found
