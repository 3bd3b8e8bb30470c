"""Puts the moving averages of a model's weights in their place for a while, as validation does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

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
def by_averages(model: Averaging) -> Iterator[None]:
    """Let a model compute with the averages of its weights within a `with` block; afterwards it has its own again."""
    own = model.parameters
    model.set_parameters(model.averaged_parameters)
    try:
        yield
    finally:
        model.set_parameters(own)
