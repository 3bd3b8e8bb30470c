"""Sharded training data: blocks of volumes in each rank's memory, exchanged between ranks every so many updates.

All volumes are cut into blocks, and each rank holds some of them (its shard). Blocks are dealt anew by seed and
period alone, and go from rank to rank; no file is read after the start. `Whole` serves runs without shards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Protocol

import numpy as np

from znnpy.config.models import Config
from znnpy.data.process_memory import available, available_memory, kept_no_longer, readable, take
from znnpy.data.sampling.blocks import (
    Block,
    Memory,
    Move,
    cut,
    dealt,
    excerpt,
    load,
    outline,
    stored_volumes,
    waves,
)
from znnpy.data.sampling.position_index import NO_FLIPS
from znnpy.data.sampling.sample import Patch
from znnpy.data.sampling.sampler import Excerpt, Sampler
from znnpy.data.sampling.shuffle import derived
from znnpy.distributed.reduction_tree import Ranks
from znnpy.distributed.transfers import Parcel
from znnpy.distributed.world import World
from znnpy.errors import RunError, VolumeError
from znnpy.network.types import Network
from znnpy.train.patch_sources import open_sampler

# Larger slices take more memory for MPI's copies, smaller ones more calls.
SLICE = 16 << 20
"""Bytes of a block that are sent at once: bounds the memory of messages."""
# A larger share leaves the network's plan and the system less than they turn out to need.
SHARE = (
    0.5  # of the available memory that blocks may take; the rest is for the network and the system
)
POOR = 0.01
"""Blocks whose counted voxels are at most this fraction of an average block's are left out.

All of them together so hold at most this fraction of what counts; a rank with such blocks alone would hardly
ever draw a valid sample.
"""


class PeriodicSource(Protocol):
    """A source of training samples, which may change from period to period."""

    def periods(self, iteration: int) -> Iterator[int | None]:
        """Prepare the period of an update, then the next ones; yield the iteration at which each ends (or None)."""

    def sample(self, index: int) -> Patch:
        """Return one sample of the prepared period."""

    def samples(self, numbers: Sequence[int]) -> Patch:
        """Return several samples, stacked."""

    def verify(self) -> None:
        """Raise ChangedError unless all that was read came from the files that were opened."""


class Whole:
    """All volumes, in one period without an end."""

    def __init__(self, sampler: Sampler) -> None:
        self.sample, self.samples, self.verify = sampler.sample, sampler.samples, sampler.verify
        self.scenes = sampler.scenes

    def periods(self, iteration: int) -> Iterator[int | None]:
        """Yield once: all samples are always ready."""
        yield None


class Shards:
    """The blocks that this rank has in memory for a period of `every` updates. All ranks make all calls together.

    `whole` is a sampler over all scenes that cannot read voxels, for the statistics of all of them; `weights` balance
    the deals; `poor` is the number of blocks that are left out.
    """

    def __init__(
        self,
        config: Config,
        whole: Sampler,
        blocks: Sequence[Block],
        weights: Sequence[int],
        poor: int,
        world: World,
    ) -> None:
        assert config.data.shards
        training, self._every = config.training, config.data.shards.exchange
        self._whole, self._blocks, self._weights, self._world = whole, blocks, weights, world
        self._poor = poor
        self._seed, self._batch = training.seed, training.batch
        # Samples within each batch that this rank computes: `_first`, and so many.
        owned = Ranks.of(training.batch // training.at_once, world.size).owned[world.rank]
        self._first, self._count = (n * training.at_once for n in owned)
        self._held: dict[int, Memory] = {}
        self._period, self._sampler = -1, whole

    @classmethod
    def open(cls, config: Config, network: Network, world: World, iteration: int) -> Shards:
        """Read this rank's blocks of the period of an update from their files.

        Raises RunError where volumes cannot be divided so, or ranks see different ones.
        """
        unread = config.data.model_copy(update={"in_memory": False})
        with ExitStack() as stack:
            stack.enter_context(kept_no_longer())
            # Left in their files: only this rank's blocks are read, below.
            sampler = open_sampler(
                stack,
                config.model_copy(update={"data": unread}),
                network,
                config.data.train,
                "data.train",
                world,
            )
            everything = _cut(config, sampler, world)
            # Cut, count, refuse, read: every rank must come to the same blocks before any
            # allocates.
            blocks, weights = _counted(everything, sampler, world)
            _refuse_few(config, blocks, sampler, world)
            _refuse_memory(config, blocks, world)
            excerpts = [
                Excerpt(number, sampler.ranges(number), outline(scene))
                for number, scene in enumerate(sampler.scenes)
            ]
            poor = len(everything) - len(blocks)
            found = cls(config, sampler.over(excerpts), blocks, weights, poor, world)
            found._read(sampler, iteration // found._every)
        # Reserved for good, so that what is planned later counts it as taken.
        take(_needed(blocks, world.size))
        return found

    def described(self) -> str:
        """Return a note for the user: how many blocks there are, and how much memory they take."""
        others = f"; {self._poor} more, in which hardly anything counts, are left out"
        return (
            f"data.train: {len(self._blocks)} blocks in the memory of {self._world.size} ranks, up to "
            f"{readable(_needed(self._blocks, self._world.size))} each, dealt anew every {self._every} updates"
            f"{others if self._poor else ''}"
        )

    def periods(self, iteration: int) -> Iterator[int | None]:
        """Exchange blocks for each next period; yields the iteration at which it ends."""
        while True:
            period = iteration // self._every
            if period != self._period:
                self._exchange(period)
            iteration = (period + 1) * self._every
            yield iteration

    def sample(self, index: int) -> Patch:
        """Return one sample from this rank's blocks."""
        return self._sampler.sample(index)

    def samples(self, numbers: Sequence[int]) -> Patch:
        """Return several samples, stacked."""
        return self._sampler.samples(numbers)

    def verify(self) -> None:
        """Do nothing: files were read at the start alone, and checked then."""

    def _deal(self, period: int) -> list[int]:
        return dealt(self._weights, self._world.size, self._seed, period)

    def _read(self, sampler: Sampler, period: int) -> None:
        # All ranks make the same deal from seed and period; nothing is sent.
        for number, rank in enumerate(self._deal(period)):
            if rank == self._world.rank:
                block = self._blocks[number]
                self._held[number] = load(block, sampler.scenes[block.scene])
        # Files may have changed while they were read, and are not looked at again.
        sampler.verify()
        self._take(period)

    def _exchange(self, period: int) -> None:
        self._sampler = self._whole  # so that blocks that leave are in nobody's hands
        # Waves bound the memory to one block more than a rank holds (docs/design/distributed.md,
        # "Shards").
        for wave in waves(self._deal(self._period), self._deal(period)):
            self._pass_on(wave)
        self._take(period)

    def _take(self, period: int) -> None:
        """Make the sampler of the blocks that are here now."""
        scenes = self._whole.scenes
        excerpts = [
            excerpt(block, scenes[block.scene], self._held[number])
            # Sorted: the order in which blocks came must not decide which sample is drawn.
            for number, block in ((n, self._blocks[n]) for n in sorted(self._held))
        ]
        self._period = period
        # Each rank and period draws by a key of its own; samples stay functions of seed and number.
        key = derived(self._seed, period, self._world.rank)
        self._sampler = self._whole.over(excerpts, self._number, key, self._where())

    def _where(self) -> str:
        first = self._period * self._every
        return (
            f" in the blocks that rank {self._world.rank} has for updates {first} to {first + self._every - 1}; with a "
            "smaller data.shards.blocks each has more, and without data.shards every rank has everything"
        )

    def _number(self, index: int) -> int:
        """Return the number of a sample among those that this rank draws in this period."""
        update, place = divmod(index, self._batch)
        # Counted from the beginning of the period, over this rank's share of each batch.
        return (update - self._period * self._every) * self._count + place - self._first

    def _pass_on(self, wave: Sequence[Move]) -> None:
        """Send a block and receive one, in slices, so that no more memory than for one more block is needed."""
        rank = self._world.rank
        out = next((move for move in wave if move.source == rank), None)
        into = next((move for move in wave if move.into == rank), None)
        room = np.empty(self._blocks[into.block].bytes if into else 0, np.uint8)
        # All ranks make as many calls as the largest block of the wave needs; those with less send
        # nothing in the last ones.
        for first in range(0, max(self._blocks[move.block].bytes for move in wave), SLICE):
            part = slice(first, first + SLICE)
            self._world.move(
                Parcel(out.into, self._held[out.block][part].data) if out else None,
                Parcel(into.source, room[part].data) if into else None,
            )
        if out:
            # Only now: the block was read from until its last slice had gone.
            del self._held[out.block]
        if into:
            self._held[into.block] = room


def training_source(
    stack: ExitStack, config: Config, network: Network, world: World, iteration: int
) -> Whole | Shards:
    """Return the source of the samples of an update and those after it; closed with the stack."""
    data = config.data
    if data.shards and world.size > 1:
        return Shards.open(config, network, world, iteration)
    # One rank has all blocks: whoever asks for shards wants no file read while training.
    if data.shards and data.in_memory == "auto":
        data = data.model_copy(update={"in_memory": True})
    config = config.model_copy(update={"data": data})
    return Whole(open_sampler(stack, config, network, data.train, "data.train", world))


def _cut(config: Config, sampler: Sampler, world: World) -> list[Block]:
    """Return the blocks, the same on all ranks; raises RunError where ranks see different volumes."""
    assert config.data.shards
    blocks = cut(sampler, config.data.shards.blocks * world.size)
    kinds = [
        [(volume.name, str(volume.dtype)) for volume in stored_volumes(scene)]
        for scene in sampler.scenes
    ]
    own = hashlib.sha256(repr((kinds, blocks)).encode()).hexdigest()
    told = world.exchange(own)
    other = next((rank for rank, found in enumerate(told) if found != told[0]), 0)
    if other:
        raise RunError(
            f"rank {other} sees other volumes under data.train than rank 0, of another name, shape or type; the "
            "same files must be under the same paths on all hosts"
        )
    return blocks


def _counted(
    blocks: Sequence[Block], sampler: Sampler, world: World
) -> tuple[list[Block], list[int]]:
    """Return the blocks with enough counted voxels, and about how many valid positions each has.

    Ranks divide the reading among them.
    """
    if not sampler.selective:
        return list(blocks), [block.positions for block in blocks]
    # Every size-th block: neighbours, which cost about as much to read, go to different ranks.
    own = range(world.rank, len(blocks), world.size)
    shares = {n: sampler.counted(blocks[n].scene, blocks[n].ranges[NO_FLIPS]) for n in own}
    told = world.exchange(list(shares.values()))
    found = [told[n % world.size][n // world.size] for n in range(len(blocks))]
    sizes = [block.positions for block in blocks]
    # Weighed by size, as it is a share of all that counts.
    least = POOR * float(np.average(found, weights=sizes))
    kept = [n for n, share in enumerate(found) if share > least]
    # At least 1: the deal balances by these weights, and a block of 0 would go anywhere.
    return [blocks[n] for n in kept], [max(1, round(found[n] * sizes[n])) for n in kept]


def _refuse_few(config: Config, blocks: Sequence[Block], sampler: Sampler, world: World) -> None:
    if not blocks:
        names = ", ".join(dict.fromkeys(scene.reference.name for scene in sampler.scenes))
        raise VolumeError(
            f"data.train: no voxel counts; the masks (or the labels to ignore) of {names} leave nothing"
        )
    if len(blocks) < world.size:
        enough = " in which enough counts" if sampler.selective else ""
        raise RunError(
            f"{config.place('data', 'shards')}: {world.size} ranks were started, and each needs a block of "
            f"data.train, which has {len(blocks)}{enough}; start at most {len(blocks)}, or leave data.shards out"
        )


def _refuse_memory(config: Config, blocks: Sequence[Block], world: World) -> None:
    """Raise RunError, before any rank allocates, where one could need more memory than it has."""
    needed, free = _needed(blocks, world.size), available_memory()
    if needed > SHARE * free:
        raise RunError(
            f"{config.place('data', 'shards')}: a rank's blocks of data.train, and one more while they are "
            f"exchanged, take up to {readable(needed)} of memory, but only {available(free)}, of which "
            f"{SHARE:.0%} may be used; start on more hosts, or leave data.shards out"
        )
    # So that no rank begins to read while another is about to refuse.
    world.exchange(None)


def _needed(blocks: Sequence[Block], ranks: int) -> int:
    """Return the most bytes that a rank holds in any period: deals differ by at most one block."""
    most = -(-len(blocks) // ranks) + 1
    return sum(sorted((block.bytes for block in blocks), reverse=True)[:most])
