"""Agreement among ranks: the microbatch of each, the state a run starts from, and the update after which all stop."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from znnpy.config import load_config
from znnpy.config.export import plain
from znnpy.config.models import Config
from znnpy.distributed.reduction_tree import Ranks, largest_microbatch
from znnpy.distributed.transfers import Carried
from znnpy.distributed.world import World
from znnpy.errors import ConfigError, RunError
from znnpy.infer.microbatch import with_microbatch_chosen
from znnpy.network import build_network, trained_network
from znnpy.train.checkpoint import Arrays, Checkpoint, Contents
from znnpy.train.progress import Reporter
from znnpy.train.run_directory import CONFIG, RunDirectory
from znnpy.train.signals import StopSignals


def with_microbatch(config: Config, run: RunDirectory, world: World, reporter: Reporter) -> Config:
    """Return the config with the run's microbatch, or with one that suits the number of ranks, if it names none.

    Raises DistributedError or RunError for more ranks than microbatches, ConfigError as `refuse_split_statistics`.
    """
    chosen = _microbatch(config, run, world, reporter)
    training = config.training.model_copy(update={"microbatch": chosen})
    if run.started and load_config(run / CONFIG).training.batch != training.batch:
        # Another batch is refused as other changes are; the microbatch that was kept may not divide it.
        return config.model_copy(update={"training": training})
    microbatches = training.batch // training.at_once
    if run.started and world.size > microbatches:
        raise RunError(
            f"this run computes its batch in {microbatches} microbatch{'es' * (microbatches > 1)}, so that "
            f"{microbatches} rank{'s' * (microbatches > 1)} at most can go on with it, and {world.size} were "
            "started; a smaller training.microbatch needs a new run"
        )
    # Only for its error: more ranks than microbatches.
    Ranks.of(microbatches, world.size)
    return config.model_copy(update={"training": training})


def _microbatch(config: Config, run: RunDirectory, world: World, reporter: Reporter) -> int | None:
    training = config.training
    if isinstance(training.microbatch, int):
        return training.microbatch
    # A run keeps the microbatch that it was begun with, whatever the number of ranks is now: it
    # decides bits.
    if run.started:
        kept = load_config(run / CONFIG).training.microbatch
        return kept if isinstance(kept, int) else None
    # Batch normalisation over fewer samples is another network, not other rounding.
    refuse_split_statistics(config, world.size)
    if training.microbatch == "auto":
        return _by_cores_and_memory(config, world.size, reporter)
    if world.size == 1:
        return None
    chosen = largest_microbatch(training.batch, world.size)
    same = "; where the config sets it, any number of ranks computes the same bits"
    reporter.note(
        f"training.microbatch is {chosen}, so that each of {world.size} ranks has one"
        f"{'' if config.data.shards else same}"
    )
    return chosen


def _by_cores_and_memory(config: Config, ranks: int, reporter: Reporter) -> int:
    chosen = with_microbatch_chosen(config, trained_network(config), ranks).training.at_once
    reporter.note(
        f"training.microbatch: auto is {chosen}, by cores and memory; the run keeps it, so that it computes the same "
        "anywhere"
    )
    return chosen


def refuse_split_statistics(config: Config, ranks: int) -> None:
    """Raise ConfigError where ranks would shrink the samples of batch normalisation without the config saying so."""
    training = config.training
    nodes = build_network(config.network).nodes
    normed = [node.name for node in nodes if node.norm and node.norm.kind == "batch"]
    if ranks == 1 or isinstance(training.microbatch, int) or not normed:
        return
    chosen = largest_microbatch(training.batch, ranks)
    unset = "is auto" if training.microbatch else "is not set"
    raise ConfigError(
        f"{config.place('training', 'microbatch')}: {unset}, and node {normed[0]!r} normalises over the "
        f"samples of a microbatch: all {training.batch} of a batch with one rank, {chosen} with {ranks}. Set it, "
        f"{chosen} or what divides that: then any number of ranks computes the same; or take the norm instance, "
        "group or layer"
    )


def for_others(config: Config) -> dict[str, Any]:
    """Return the config for the other ranks, JSON-able; without the plan, which rank 0 alone reads."""
    # The file may be on rank 0's disk alone; its content comes with the plan.
    training = config.training.model_copy(update={"plan": None})
    return plain(config.model_copy(update={"training": training}))


def state_as_bytes(checkpoint: Checkpoint, contents: Contents) -> bytes:
    """Return the arrays of a checkpoint as bytes, one after the other."""
    groups = {"parameters": checkpoint.parameters, "optimizer_state": checkpoint.optimizer_state}
    parts = (name.partition("/") for name in contents.members())
    # In the order of `contents`, which all ranks derive from the config, so no names need to
    # travel.
    return b"".join(groups[group][inner].tobytes() for group, _, inner in parts)


def state_from_bytes(data: bytes, contents: Contents) -> tuple[Arrays, Arrays]:
    """Return parameters and optimiser state from the bytes of `state_as_bytes`."""
    groups: dict[str, Arrays] = {"parameters": {}, "optimizer_state": {}}
    at = 0
    for name, kind in contents.members().items():
        group, _, inner = name.partition("/")
        values = np.frombuffer(data, kind.dtype, kind.nbytes // kind.dtype.itemsize, at)
        groups[group][inner], at = values.reshape(kind.shape), at + kind.nbytes
    return groups["parameters"], groups["optimizer_state"]


@dataclass
class CommonStop:
    """Stop signals shared by all ranks: if any rank gets one, all stop after the same update, one later than asked.

    `requested` is what all know: nothing that one rank does by itself is cut short. `carried`: messages of
    each rank, as last told.
    """

    signals: StopSignals
    world: World
    requested: int | None = None
    carried: Sequence[Carried] = ()
    _asked: Future[list[Any]] | None = None

    def agreed(self) -> int | None:
        """Return the signal that some rank had at the previous call; all ranks must call equally often."""
        told = [self.signals.requested, *self.world.messenger.carried]
        # The answer is looked at one update later: nobody waits for a message before an update, and
        # all ranks see the same one.
        before, self._asked = self._asked, self.world.begin_exchange(told)
        if before and self.requested is None:
            found = before.result()
            self.requested = next((signal for signal, *_ in found if signal), None)
            self.carried = [Carried(*rest) for _, *rest in found]
        return self.requested

    def timings(self) -> dict[str, Any]:
        """Return, for the log, each rank's messages since the start of the run: number, bytes, seconds under way."""
        return {
            "ranks": [
                {"rank": rank, **it._asdict(), "seconds": round(it.seconds, 4)}
                for rank, it in enumerate(self.carried)
            ]
        }

    def deferred(self) -> AbstractContextManager[None]:
        """Note the first signal instead of raising it."""
        return self.signals.deferred()
