"""The final evaluation over ranks: rank 0 reads volumes and scores, all ranks compute patches, with the bits of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from znnpy.config import config_from
from znnpy.config.models import Config
from znnpy.data.sampling.prefetch import Float32
from znnpy.distributed.world import World
from znnpy.engine.model import Model
from znnpy.geometry.finest_outputs import finest
from znnpy.geometry.shape_inference import Geometry
from znnpy.infer.config_model import patch_model
from znnpy.infer.together import Helpers, Together
from znnpy.network import trained_network
from znnpy.network.types import Network, Triple
from znnpy.train.consensus import for_others
from znnpy.train.environment import Member
from znnpy.train.shared_forward import SharedForward
from znnpy.train.update_driver import with_threads


class _OnePatch:
    """A model of patches as one whose batch has a sample on each rank."""

    def __init__(self, model: Model, world: World) -> None:
        self._model, self.batch = model, world.size
        self.samples = range(world.rank, world.rank + 1)
        self.network: Network = model.network
        self.geometry: Geometry = model.geometry

    def forward(self, x: Mapping[str, Float32]) -> dict[str, Float32]:
        for name, room in self._model.staged().items():
            room[...] = x[name]
        return {name: np.array(values) for name, values in self._model.run().items()}


class _Shared:
    """Rank 0's side: tells the others of each call."""

    def __init__(self, model: Model, world: World) -> None:
        self._world, self.size = world, world.size
        self._forward = SharedForward(_OnePatch(model, world), world)

    def __call__(self, images: Mapping[str, Float32]) -> Mapping[str, Float32]:
        self._world.broadcast(True)
        return self._forward(images)


def helpers_of(world: World, config: Config) -> Helpers:
    """Return what makes the other ranks, which `assist`, compute patches with rank 0."""

    @contextmanager
    def helping(model: Model, patch: Triple, plan: Mapping[str, Any]) -> Iterator[Together]:
        parameters = model.parameters
        told = [[name, list(it.shape), it.dtype.str] for name, it in parameters.items()]
        world.broadcast([for_others(config), list(patch), dict(plan), told])
        world.broadcast(b"".join(it.tobytes() for it in parameters.values()))
        yield _Shared(model, world)
        # Not after an error: the others then end with this rank, which says why.
        world.broadcast(None)

    return helping


def assist(world: World, members: Sequence[Member]) -> None:
    """Compute patches with rank 0, for each of its predictions, until it tells that there are no more."""
    while (told := world.broadcast()) is not None:
        config, patch, plan, kinds = told
        _compute(world, members, config_from(config), patch, plan, kinds)


def _compute(
    world: World,
    members: Sequence[Member],
    config: Config,
    patch: list[int],
    plan: Mapping[str, Any],
    kinds: list[Any],
) -> None:
    parameters, at, data = {}, 0, world.broadcast()
    for name, shape, kind in kinds:
        count = int(np.prod(shape, dtype=np.int64))
        parameters[name] = np.frombuffer(data, kind, count, at).reshape(shape)
        at += parameters[name].nbytes
    config, (z, y, x) = with_threads(config, members, world.rank), patch
    with patch_model(config, finest(trained_network(config)), (z, y, x), plan) as model:
        model.set_parameters(parameters)
        forward = SharedForward(_OnePatch(model, world), world)
        while world.broadcast():
            forward()
