"""Data of one step on its way in and out: inputs, targets, weights, hyperparameters, loss."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.feature_maps import Layout
from znnpy.engine.memory.regions import Buffer, Filled, Name, Use
from znnpy.engine.memory.tensors import Tensor, dense_floats, new_tensor
from znnpy.layers.types import BARE
from znnpy.network.types import Node

STAGED = Use("staged data")
RESULTS = Use("loss and error", "staged data")

HYPER_WORDS = 16
"""The most numbers that an update's kernel reads."""


@dataclass(frozen=True)
class Staging:
    """Buffers of one microbatch that Python fills before a step is released and reads after its loss is known.

    `inputs` are planar (batch, channel, z, y, x) and used in place as the input nodes' images, frame included.
    `targets` and `weights` are planar addresses by output node, where arrays are copied to; `places`
    holds for each output the two int64 addresses from which its loss reads target and weight (0: all 1).
    `results` are two float64 by output: loss and error. All microbatches of a step have the rest in common.
    `normalizers` are of two float32 each, which sums of losses and of what is wrong are multiplied by.
    `classes` holds how much each image of an output counts, `tables` three int64 for each image.
    `hyper`, `hyper_biases` are the optimiser's blocks of float64, `iteration` one int64. `given` stands for all
    that Python fills beside inputs.
    """

    inputs: dict[str, Tensor]
    targets: dict[str, int]
    weights: dict[str, int]
    places: dict[str, int]
    results: dict[str, Buffer]
    normalizers: dict[str, int]
    classes: dict[str, int]
    tables: dict[str, int]
    hyper: int
    hyper_biases: int
    iteration: int
    given: Buffer


def reserve_staging(arena: Arena, layout: Layout, parity: int) -> list[Staging]:
    """Reserve the staging of the even or odd step by microbatch; targets and weights only when training."""
    network, reserve = layout.network, partial(arena.reserve, use=STAGED)
    outputs = network.outputs if layout.training else ()
    sizes = {
        node.name: dense_floats(layout.batch, node.channels, layout.shape(node.name))
        for node in outputs
    }
    normalizers = {name: reserve(2) for name in sizes}
    classes = {node.name: reserve(node.channels) for node in outputs}
    tables = {node.name: reserve(6 * node.channels) for node in outputs}
    hyper, hyper_biases, iteration = reserve(2 * HYPER_WORDS), reserve(2 * HYPER_WORDS), reserve(2)
    given = Buffer(Name(STAGED, which=(parity,)), filled=Filled.OUTSIDE)

    def of(which: tuple[int, int]) -> Staging:
        return Staging(
            {node.name: _input(arena, layout, node, which) for node in network.inputs},
            {name: reserve(size) for name, size in sizes.items()},
            {name: reserve(size) for name, size in sizes.items()},
            {name: reserve(4) for name in sizes},
            {name: arena.buffer(Name(RESULTS, name, which), 4) for name in sizes},
            normalizers,
            classes,
            tables,
            hyper,
            hyper_biases,
            iteration,
            given,
        )

    return [of((parity, microbatch)) for microbatch in range(len(layout.numbers))]


def _input(arena: Arena, layout: Layout, node: Node, which: tuple[int, int]) -> Tensor:
    return new_tensor(
        arena,
        Name(STAGED, node.name, which),
        layout.batch,
        node.channels,
        layout.shape(node.name),
        cut=layout.cut,
        lanes=1,
        frame=layout.frame(node.name) if layout.stays_planar(node.name) else BARE,
        filled=Filled.OUTSIDE,
    )
