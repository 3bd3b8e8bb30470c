"""Data of one step on its way in and out: inputs, targets, weights, hyperparameters, loss."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from znnpy_kernels.layers.optimizers import HYPERPARAMETERS

from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.images import Layout
from znnpy.engine.memory.regions import Buffer, Filled, Name, Use
from znnpy.engine.memory.tensors import Tensor, dense_floats, new_tensor
from znnpy.layers.values import BARE

STAGED = Use("staged data")
RESULTS = Use("loss and error", "staged data")

HYPER_WORDS = len(HYPERPARAMETERS)


@dataclass(frozen=True)
class Staging:
    """Buffers that Python fills before a step is released and reads after its loss is known.

    `inputs` are planar (batch, image, z, y, x) and used in place as the input nodes' images, frame included.
    `targets` and `weights` are planar addresses by output node, where arrays are copied to; `places`
    holds for each output the two int64 addresses from which its loss reads target and weight (0: all 1).
    `normalizers` are of two float32 each, which sums of losses and of what is wrong are multiplied by.
    `classes` holds how much each image of an output counts, `tables` three int64 for each image.
    `hyper`, `hyper_biases` are the optimiser's blocks of float64, `iteration` one int64, `results` two float64 by
    output: loss and error. `given` stands for all that Python fills beside inputs.
    """

    inputs: dict[str, Tensor]
    targets: dict[str, int]
    weights: dict[str, int]
    places: dict[str, int]
    normalizers: dict[str, int]
    classes: dict[str, int]
    tables: dict[str, int]
    hyper: int
    hyper_biases: int
    iteration: int
    results: dict[str, Buffer]
    given: Buffer


def reserve_staging(arena: Arena, layout: Layout, parity: int) -> Staging:
    """Reserve the staging of the even or odd step; targets and weights only when training."""
    network, batch, reserve = layout.network, layout.batch, partial(arena.reserve, use=STAGED)
    inputs = {
        node.name: new_tensor(
            arena,
            Name(STAGED, node.name, (parity,)),
            batch,
            node.images,
            layout.shape(node.name),
            cut=layout.cut,
            lanes=1,
            frame=layout.frame(node.name) if layout.stays_planar(node.name) else BARE,
            filled=Filled.OUTSIDE,
        )
        for node in network.inputs
    }
    outputs = network.outputs if layout.training else ()
    sizes = {
        node.name: dense_floats(batch, node.images, layout.shape(node.name)) for node in outputs
    }
    return Staging(
        inputs,
        {name: reserve(size) for name, size in sizes.items()},
        {name: reserve(size) for name, size in sizes.items()},
        {name: reserve(4) for name in sizes},
        {name: reserve(2) for name in sizes},
        {node.name: reserve(node.images) for node in outputs},
        {node.name: reserve(6 * node.images) for node in outputs},
        reserve(2 * HYPER_WORDS),
        reserve(2 * HYPER_WORDS),
        reserve(2),
        {name: Buffer(Name(RESULTS, name, (parity,)), reserve(4), 4) for name in sizes},
        Buffer(Name(STAGED, which=(parity,)), filled=Filled.OUTSIDE),
    )
