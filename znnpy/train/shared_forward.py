"""Forward passes of validation that all ranks share: rank 0 hands out the patches, and the values come back to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any, Protocol

import numpy as np

from znnpy.data.sampling.prefetch import Float32
from znnpy.distributed.transfers import Parcel
from znnpy.distributed.world import World
from znnpy.geometry.shape_inference import Geometry
from znnpy.network.types import Network
from znnpy.train.log import Record

SLICE = 16 << 20  # bytes that are sent at once, which bounds the memory of messages


class Divided(Protocol):
    """The parts of a model whose batches are divided among ranks; `znnpy.Model` has them."""

    @property
    def batch(self) -> int:
        """How many samples all ranks compute at once."""

    @property
    def samples(self) -> range:
        """Which of them this rank computes."""

    @property
    def network(self) -> Network:
        """The network."""

    @property
    def geometry(self) -> Geometry:
        """The shapes for one sample."""

    def forward(self, x: Any) -> Any:
        """Return values by output, or of the only one, for this rank's samples of inputs by node."""


class SharedForward:
    """The values of a model for batches, of which each rank computes the samples that are its own in training.

    So samples are computed beside the same ones as by one process, with the same bits. All ranks make one, and call
    it equally often; only rank 0 reads the volumes.
    """

    def __init__(self, model: Divided, world: World) -> None:
        self._model, self._world = model, world
        # Told, not computed: also which samples a rank has is said in one place.
        told = world.exchange([model.samples.start, model.samples.stop])
        self._shares = [slice(*ends) for ends in told]
        nodes, geometry = {node.name: node for node in model.network.nodes}, model.geometry
        self._given, self._found = (
            {name: (nodes[name].channels, *shape) for name, shape in shapes.items()}
            for shapes in (geometry.input_shapes, geometry.output_shapes)
        )

    def __call__(self, images: Mapping[str, Float32] | None = None) -> dict[str, Float32]:
        """Return the values of a batch by output on rank 0, which gives its images; a share of them on others."""
        own = self._shares[self._world.rank]
        count = own.stop - own.start
        given = {
            name: np.empty((count, *shape), np.float32) if images is None else images[name]
            for name, shape in self._given.items()
        }
        for name, shape in self._given.items():
            for rank in range(1, self._world.size):
                self._move(0, rank, given[name], shape)
        if images is not None:
            given = {name: array[own] for name, array in given.items()}
        values: Any = self._model.forward(given)
        if not isinstance(values, dict):
            values = dict.fromkeys(self._found, values)
        found = {}
        for name, shape in self._found.items():
            found[name] = np.ascontiguousarray(values[name])
            if self._world.rank == 0:
                whole = np.empty((self._model.batch, *shape), np.float32)
                whole[own] = found[name]
                found[name] = whole
            for rank in range(1, self._world.size):
                self._move(rank, 0, found[name], shape)
        return found

    def _move(
        self, source: int, target: int, array: Float32, shape: tuple[int, int, int, int]
    ) -> None:
        """Move the samples of a rank's share from or to rank 0; `array`: of rank 0 all, of others their share."""
        share, own = self._shares[source or target], self._world.rank
        memory = None
        if own in (source, target):
            memory = (array[share] if own == 0 else array).data.cast("B")
        for first in range(0, 4 * (share.stop - share.start) * prod(shape), SLICE):
            part = memory[first : first + SLICE] if memory is not None else memoryview(b"")
            self._world.move(
                Parcel(target, part) if own == source else None,
                Parcel(source, part) if own == target else None,
            )


class SharedValidation:
    """What ranks other than 0 do of a validation: their share of the forward passes of all its batches."""

    def __init__(
        self,
        forward: SharedForward,
        batches: int,
        during: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._forward, self._batches, self._during = forward, batches, during

    def __call__(self) -> Record:
        """Compute all batches; the scores are rank 0's."""
        with self._during():
            for _ in range(self._batches):
                self._forward()
        return {}
