"""Staging buffers, by which data enters and leaves a step: inputs, targets, weights, hyperparameters, loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from struct import calcsize

from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.regions import Buffer, Filled, Name, Use
from znnpy.engine.memory.tensors import Tensor, dense_floats, new_tensor
from znnpy.layers.types import BARE
from znnpy.network.types import Node

STAGED = Use("staged data")
RESULTS = Use("loss and error", "staged data")

HYPER_WORDS = 16
"""Numbers that the kernels of an update read: the optimiser's, and last the share by which averages move."""
SHARE_AT = HYPER_WORDS - 1

NUMBERS = f"={2 * HYPER_WORDS}dq"
"""How the numbers that all microbatches share lie, as `struct` writes it; two float32 for each output follow.

Behind these the two numbers that stay as they are: the seed, and the norm by which gradients are clipped.
"""


@dataclass(frozen=True)
class Staging:
    """Buffers of one microbatch that Python fills before a step is released and reads after its loss is known.

    Numbers are addresses. `inputs`: planar (batch, channel, z, y, x), used in place as the input nodes' activations,
    padding included, or packed into these. `sources`: by input, an int64, the address of the planar array that is
    packed: these or the caller's. `targets`, `weights`: by output node, where planar arrays are copied to. `places`: by
    output, two int64 addresses from which its loss reads target and weight (0: all 1), side by side. `outputs`: by
    output, an int64, the address of the planar array to which a forward pass copies its values (0: none). `results`:
    by output, two float64, loss and error. All microbatches of a step have the rest in common. Side by side, as
    NUMBERS says: `hyper`, `hyper_biases`, float64 numbers of the optimiser for filters and for all else; `iteration`,
    one int64; `normalizers`, by output, two float32 by which the sums of losses and of wrong voxels are multiplied.
    `classes`: a float32 weight for each channel of an output; `tables`: three int64 for each channel. `seed`: an int64;
    `max_norm`: a float64. `given`: the buffer that stands for all that Python fills beside inputs.
    """

    inputs: dict[str, Tensor]
    sources: dict[str, int]
    targets: dict[str, int]
    weights: dict[str, int]
    places: dict[str, int]
    outputs: dict[str, int]
    results: dict[str, Buffer]
    normalizers: dict[str, int]
    classes: dict[str, int]
    tables: dict[str, int]
    hyper: int
    hyper_biases: int
    iteration: int
    seed: int
    max_norm: int
    given: Buffer


@dataclass(frozen=True)
class Move:
    """From the staging of the even step to that of the odd one: `buffers` by those of the even step.

    Addresses in `places`, all of the even step's staging, move by `distance` bytes.
    """

    buffers: dict[Buffer, Buffer]
    places: range
    distance: int

    @classmethod
    def of(cls, even: Sequence[Staging], odd: Sequence[Staging]) -> Move:
        """Return the move between two sets of staging, reserved one behind the other in the same order."""
        start, end = even[0].hyper, odd[0].hyper
        pairs = zip(chain(*map(_buffers, even)), chain(*map(_buffers, odd)), strict=True)
        return cls(dict(pairs), range(start, end), end - start)

    def address(self, word: int) -> int:
        """Return an argument word of the odd step: no number of another kind is as large as an address."""
        return word + self.distance if word in self.places else word


def _buffers(staging: Staging) -> list[Buffer]:
    inputs = (tensor.buffer for tensor in staging.inputs.values())
    return [staging.given, *inputs, *staging.results.values()]


def reserve_staging(arena: Arena, layout: Layout, parity: int) -> list[Staging]:
    """Reserve the staging of the even or odd step, by microbatch; targets and weights only for training."""
    network, reserve = layout.network, partial(arena.reserve, use=STAGED)
    outputs = network.outputs if layout.training else ()
    # First, and so the beginning of all: two sets of hyperparameters, since weight decay is for filters alone; tasks
    # read them by address, so neither a new learning rate nor another seed changes a task.
    hyper = reserve(calcsize(NUMBERS) // 4 + 2 * len(outputs) + 4)
    hyper_biases, iteration = hyper + 8 * HYPER_WORDS, hyper + 16 * HYPER_WORDS
    factors = hyper + calcsize(NUMBERS)
    seed = factors + 8 * len(outputs)
    sizes = {
        node.name: dense_floats(layout.batch, node.channels, layout.shape(node.name))
        for node in outputs
    }
    normalizers = {name: factors + 8 * index for index, name in enumerate(sizes)}
    classes = {node.name: reserve(node.channels) for node in outputs}
    # Three int64 a channel are six floats; float64 and int64 take two floats each below, too.
    tables = {node.name: reserve(6 * node.channels) for node in outputs}
    given = Buffer(Name(STAGED, which=(parity,)), filled=Filled.OUTSIDE)

    def of(which: tuple[int, int]) -> Staging:
        places = reserve(4 * len(sizes))  # two addresses each
        return Staging(
            {node.name: _input(arena, layout, node, which) for node in network.inputs},
            {node.name: reserve(2) for node in network.inputs},
            {name: reserve(size) for name, size in sizes.items()},
            {name: reserve(size) for name, size in sizes.items()},
            {name: places + 16 * index for index, name in enumerate(sizes)},
            {node.name: reserve(2) for node in network.outputs},
            {name: arena.buffer(Name(RESULTS, name, which), 4) for name in sizes},
            normalizers,
            classes,
            tables,
            hyper,
            hyper_biases,
            iteration,
            seed,
            seed + 8,
            given,
        )

    return [of((parity, microbatch)) for microbatch in range(len(layout.numbers))]


def _input(arena: Arena, layout: Layout, node: Node, which: tuple[int, int]) -> Tensor:
    planar = layout.stays_planar(node.name)
    tensor = new_tensor(
        arena,
        Name(STAGED, node.name, which),
        layout.batch,
        node.channels,
        layout.shape(node.name),
        cut=layout.cut,
        lanes=1,
        # A packed input has its frame where it is packed to.
        frame=layout.frame(node.name) if planar else BARE,
        filled=Filled.OUTSIDE,
        apart=layout.grain.many,
    )
    if planar:
        return tensor
    # As the caller's arrays lie, which are packed in its place: sample by sample.
    image = tensor.batch_stride
    return replace(tensor, batch_stride=node.channels * image, block_stride=image)
