"""Blocks of training volumes for sharding: neighbouring patch positions with all voxels they need, dealt to ranks.

Ranks get other blocks each period; the deals and the transfers between them are seeded, the same on all ranks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from znnpy.data.samples.image_labels import spread, stored
from znnpy.data.sampling.position_index import NO_FLIPS, Flips, Range, minus, number_of
from znnpy.data.sampling.sampler import Excerpt, Sampler
from znnpy.data.sampling.shuffle import derived, shuffled
from znnpy.data.scene import Scene
from znnpy.data.volume import Array, Triple, Volume, slabs_of

LARGEST = 256 << 20
"""Bytes of a block at most, or what PATCHES patches need if that is more."""
PATCHES = 8
"""A block is about twice as long as a patch along each axis, so that a voxel is in about as many blocks at most."""
ALIGNED = 64  # bytes: a cache line, which suits every dtype
Memory = NDArray[np.uint8]


@dataclass(frozen=True)
class Block:
    """Patch positions of a scene, by flips, and the regions of its stored volumes that patches there read.

    All regions lie one after the other in `bytes` bytes of memory.
    """

    scene: int
    ranges: Mapping[Flips, Range]
    regions: tuple[Range, ...]
    bytes: int

    @property
    def positions(self) -> int:
        """The number of positions, unflipped."""
        return number_of(*self.ranges[NO_FLIPS])


class Held(Volume):
    """A volume of which only a region is in memory: `array`, from voxel `first` on. Reading anything else is an error.

    Values are checked when they are read, as those of a file: a block serves patches as soon as it has arrived.
    """

    def __init__(self, volume: Volume, first: Triple, array: Array) -> None:
        super().__init__(volume.name, volume.shape, volume.dtype, volume.resolution, volume.placed)
        self.neighbours, self.directions = volume.neighbours, volume.directions
        self._first, self._array = first, array.view()
        self._array.setflags(write=False)

    def _read(self, lower: Triple, upper: Triple) -> Array:
        start, stop = minus(lower, self._first), minus(upper, self._first)
        if min(start) < 0 or any(a > b for a, b in zip(stop, self._array.shape[1:], strict=True)):
            raise AssertionError(f"{self.name}: {lower} to {upper} is not held here")
        z, y, x = (slice(a, b) for a, b in zip(start, stop, strict=True))
        return self._array[:, z, y, x]


def cut(sampler: Sampler, count: int, largest: int = LARGEST) -> list[Block]:
    """Return about `count` blocks or more, of nearly equal numbers of positions, each of at most `largest` bytes.

    A block may be larger if PATCHES patches need it: smaller ones would hold their voxels many times. Every position
    of the sampler is in one block. There are fewer blocks where there are not so many positions.
    """
    sizes = [number_of(*sampler.ranges(n)[NO_FLIPS]) for n in range(len(sampler.scenes))]
    shares = [ceil(count * size / sum(sizes)) for size in sizes]
    return [
        block
        for number, share in enumerate(shares)
        for block in _small(sampler, number, share, largest)
    ]


def load(block: Block, scene: Scene) -> Memory:
    """Read a block's bytes, its own regions alone, from the files of its scene."""
    memory = np.empty(block.bytes, np.uint8)
    for volume, (lower, upper), array in _parts(block, scene, memory):
        for start, stop in slabs_of(volume, lower[0], upper[0]):
            region = (start, *lower[1:]), (stop, *upper[1:])
            array[:, start - lower[0] : stop - lower[0]] = volume.read(*region, finite=False)
    return memory


def excerpt(block: Block, scene: Scene, memory: Memory) -> Excerpt:
    """Return a block as a sampler takes it, with views of its bytes."""
    held = {
        volume: Held(volume, lower, array)
        for volume, (lower, _), array in _parts(block, scene, memory)
    }
    return Excerpt(block.scene, block.ranges, _replaced(scene, held))


def outline(scene: Scene) -> Scene:
    """Return a scene without readable voxels: what is left when its files are closed."""
    volumes = stored_volumes(scene)
    nothing = {v: Held(v, (0, 0, 0), np.empty((v.channels, 1, 1, 1), v.dtype)) for v in volumes}
    return _replaced(scene, nothing)


def stored_volumes(scene: Scene) -> list[Volume]:
    """Return the volumes of a scene as they are in their files, each once, images first."""
    return list(dict.fromkeys(stored(volume) for volume in scene.volumes()))


def _replaced(scene: Scene, by: Mapping[Volume, Volume]) -> Scene:
    images = {node: by[volume] for node, volume in scene.images.items()}
    first = next(iter(images.values()))
    labels, masks = (
        {node: spread(by[stored(volume)], first) for node, volume in group.items()}
        for group in (scene.labels, scene.masks)
    )
    return Scene(images, labels, masks)


def _small(sampler: Sampler, number: int, count: int, largest: int) -> list[Block]:
    """Return the blocks of one scene: as many as asked for, or more to make each small enough."""
    ranges, before = sampler.ranges(number), None
    largest = max(largest, PATCHES * _single(sampler, number).bytes)
    while True:
        grid = _grid(ranges, count)
        blocks = [_block(sampler, number, cell) for cell in _cells(ranges, grid)]
        most = max(block.bytes for block in blocks)
        if most <= largest or grid == before:
            return blocks
        count, before = max(len(blocks) + 1, ceil(len(blocks) * most / largest)), grid


def _single(sampler: Sampler, number: int) -> Block:
    """Return a block of one position in the middle of a scene, where no patch is cut off by a border."""

    def middle(positions: Range) -> Range:
        z, y, x = ((a + b) // 2 for a, b in zip(*positions, strict=True))
        return (z, y, x), (z + 1, y + 1, x + 1)

    ranges = sampler.ranges(number).items()
    return _block(sampler, number, {flips: middle(positions) for flips, positions in ranges})


def _grid(ranges: Mapping[Flips, Range], count: int) -> Triple:
    """Return a grid of at least so many cells, or of single positions; always cuts the longest side of the cells."""
    sides = np.min([minus(upper, lower) for lower, upper in ranges.values()], axis=0)
    cuts = np.ones(3, np.int64)
    while prod(cuts.tolist()) < count and (sides > cuts).any():
        cuts[int(np.argmax(sides / cuts))] += 1
    for axis in np.argsort(sides / cuts):  # the last cut may have made many more than asked for
        others = prod(cuts.tolist()) // int(cuts[axis])
        cuts[axis] = min(int(cuts[axis]), -(-count // others))
    z, y, x = cuts.tolist()
    return z, y, x


def _cells(ranges: Mapping[Flips, Range], grid: Triple) -> Iterator[dict[Flips, Range]]:
    """Yield the ranges of each cell: nearly equal parts of the whole ones along each axis."""
    for cell in np.ndindex(grid):
        yield {flips: _share(positions, cell, grid) for flips, positions in ranges.items()}


def _share(positions: Range, cell: Sequence[int], grid: Triple) -> Range:
    def corner(place: Sequence[int]) -> Triple:
        z, y, x = (
            a + (b - a) * n // of for a, b, n, of in zip(*positions, place, grid, strict=True)
        )
        return z, y, x

    return corner(cell), corner([n + 1 for n in cell])


def _block(sampler: Sampler, number: int, ranges: dict[Flips, Range]) -> Block:
    found = sampler.regions(number, ranges)
    one = ((0, 0, 0), (1, 1, 1))
    volumes = stored_volumes(sampler.scenes[number])
    regions = tuple(found.get(volume, one) for volume in volumes)
    size = sum(_bytes(volume, region) for volume, region in zip(volumes, regions, strict=True))
    return Block(number, ranges, regions, size)


def _parts(
    block: Block, scene: Scene, memory: Memory
) -> Iterator[tuple[Volume, Range, NDArray[np.generic]]]:
    """Yield stored volumes, the region of each that a block has, and its place in the memory, (C, z, y, x)."""
    begin = 0
    for volume, region in zip(stored_volumes(scene), block.regions, strict=True):
        shape = (volume.channels, *minus(region[1], region[0]))
        size = prod(shape) * volume.dtype.itemsize
        yield volume, region, memory[begin : begin + size].view(volume.dtype).reshape(shape)
        begin += _bytes(volume, region)


def _bytes(volume: Volume, region: Range) -> int:
    size = volume.channels * number_of(*region) * volume.dtype.itemsize
    return -(-size // ALIGNED) * ALIGNED


_DEALS = 0x6465616C  # "deal": makes the random numbers of deals others than those of samples


class Move(NamedTuple):
    """The transfer of a block from one rank to another."""

    block: int
    source: int
    into: int


def dealt(weights: Sequence[int], ranks: int, seed: int, period: int) -> list[int]:
    """Return the rank that holds each block in a period.

    Numbers of blocks differ by at most one between ranks, weights by at most the largest. The heaviest blocks go to
    a rank each, then the next heaviest, and so on; seed and period decide which goes to which, and the order of
    blocks that weigh the same.
    """
    count, key = len(weights), derived(seed, _DEALS)
    rounds = -(-count // ranks)
    chance = [shuffled(period * count + block, count, key) for block in range(count)]
    order = sorted(range(count), key=lambda block: (-weights[block], chance[block]))
    owners = [0] * count
    for place, block in enumerate(order):
        owners[block] = shuffled(period * rounds * ranks + place, ranks, key + 1)
    return owners


def waves(before: Sequence[int], after: Sequence[int]) -> list[list[Move]]:
    """Return the moves between two deals, in waves: in each, a rank sends at most one block and receives at most one.

    Between waves no rank has more blocks than the larger of its numbers before and after.
    """
    found: list[list[Move]] = []
    busy: list[set[int]] = []
    for trail in _trails(before, after):
        ranks = {rank for move in trail for rank in (move.source, move.into)}
        free = next((n for n, others in enumerate(busy) if ranks.isdisjoint(others)), len(found))
        if free == len(found):
            found.append([])
            busy.append(set())
        found[free] += trail
        busy[free] |= ranks
    return found


def _trails(before: Sequence[int], after: Sequence[int]) -> Iterator[list[Move]]:
    """Yield closed trails of moves, and open ones from ranks that lose blocks to ranks that gain them."""
    moves = defaultdict[int, list[Move]](list)
    surplus = Counter[int]()
    for block, (source, into) in enumerate(zip(before, after, strict=True)):
        if source != into:
            moves[source].append(Move(block, source, into))
            surplus[source] += 1
            surplus[into] -= 1
    while leaving := [rank for rank in sorted(moves) if moves[rank]]:
        first = next((rank for rank in leaving if surplus[rank] > 0), leaving[0])
        rank, trail = first, list[Move]()
        while moves[rank]:
            trail.append(moves[rank].pop())
            rank = trail[-1].into
            passed = [move.source for move in trail]
            if rank in passed:
                yield trail[passed.index(rank) :]
                del trail[passed.index(rank) :]
        if trail:
            surplus[first] -= 1
            surplus[rank] += 1
            yield trail
