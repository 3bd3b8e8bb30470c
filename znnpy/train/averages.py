"""Puts the moving averages of a model's weights in their place for a while, as validation does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from znnpy.distributed.world import World
from znnpy.train.checkpoint import Arrays


class Averaging(Protocol):
    """A model that keeps moving averages of its weights; `znnpy.Model` has these."""

    @property
    def parameters(self) -> Arrays:
        """Return copies of the parameters by name."""

    @property
    def averaged_parameters(self) -> Arrays:
        """Return copies of them, averages where there are some."""

    def set_parameters(self, values: Arrays) -> None:
        """Set the parameters."""


@contextmanager
def by_averages(model: Averaging, world: World | None = None) -> Iterator[None]:
    """Let a model compute with the averages of its weights within a `with` block; afterwards it has its own again.

    All ranks of `world` take rank 0's, together: others may keep none.
    """
    own = model.parameters
    model.set_parameters(
        _told(model, own, world) if world and world.size > 1 else model.averaged_parameters
    )
    try:
        yield
    finally:
        model.set_parameters(own)


def _told(model: Averaging, like: Arrays, world: World) -> Arrays:
    """Return rank 0's averages, which are shaped like `like`."""
    # In the order of names, which all ranks have, so none need to travel.
    own = model.averaged_parameters if world.rank == 0 else {}
    data = world.broadcast(b"".join(own[name].tobytes() for name in sorted(own)))
    found, at = {}, 0
    for name in sorted(like):
        shape, kind = like[name].shape, like[name].dtype
        found[name] = np.frombuffer(data, kind, like[name].size, at).reshape(shape)
        at += like[name].nbytes
    return found
