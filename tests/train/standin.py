"""A linear model in NumPy with the interface of znnpy.Model that the loop uses, and batches for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from znnpy.train import checkpoint as checkpoints
from znnpy.train.checkpoint import Contents
from znnpy.train.loop import Batch
from znnpy.train.npz_reader import Kind

PACE: dict[str, Any] = {
    "iterations": 30,
    "batch": 4,
    "voxels": 4,
    "seed": 1,
    "log_every": 1,
    "validate_every": 7,
    "save_every": 10,
    "keep": 2,
}


@dataclass(frozen=True)
class Outcome:
    loss: float
    error: float


class LinearModel:
    """y = w x + b by SGD with momentum; `poison` is the iteration whose loss is NaN."""

    def __init__(self, poison: int = -1, infinite_weight: int = -1) -> None:
        self.iteration = 0
        self.poison, self.infinite_weight = poison, infinite_weight
        self._w = {"w": np.ones(3, np.float32), "b": np.zeros(1, np.float32)}
        self._v = {name: np.zeros_like(array) for name, array in self._w.items()}
        self._results: dict[int, Outcome] = {}
        self.most_in_flight = 0

    @property
    def parameters(self) -> dict[str, Any]:
        return {name: array.copy() for name, array in self._w.items()}

    def set_parameters(self, values: dict[str, Any]) -> None:
        self._w = {name: array.copy() for name, array in values.items()}

    @property
    def optimizer_state(self) -> dict[str, Any]:
        return {name: array.copy() for name, array in self._v.items()}

    def set_optimizer_state(self, values: dict[str, Any]) -> None:
        self._v = {name: array.copy() for name, array in values.items()}

    def submit(
        self, x: Any, target: Any, weight: Any = None, *, learning_rate: float = 0.01
    ) -> int:
        error = x @ self._w["w"] + self._w["b"] - target
        loss = float(np.mean(error**2))
        self.iteration += 1
        if self.iteration == self.poison:
            loss = float("nan")
        for name, gradient in {"w": x.T @ error / len(x), "b": error.mean(keepdims=True)}.items():
            self._v[name] = np.float32(0.9) * self._v[name] + gradient.astype(np.float32)
            self._w[name] = self._w[name] - np.float32(learning_rate) * self._v[name]
        if self.iteration in (self.poison, self.infinite_weight):
            self._w["w"][0] = np.inf
        self._results[self.iteration] = Outcome(loss, float(np.mean(np.abs(error) > 0.5)))
        self.most_in_flight = max(self.most_in_flight, len(self._results))
        return self.iteration

    def result(self, ticket: int) -> Outcome:
        return self._results.pop(ticket)

    def drain(self) -> None:
        pass

    def non_finite_layer(self) -> str | None:
        return next((n for n, a in self._w.items() if not np.isfinite(a).all()), None)


def batches(start: int, stop_at: int | None = None) -> Iterator[Batch]:
    """Batch k is a function of k; a SIGTERM comes while number `stop_at` is made."""
    number = start
    while True:
        if number == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        x = np.random.default_rng(number).normal(size=(4, 3)).astype(np.float32)
        yield Batch(x, x @ np.array([1, -2, 3], np.float32), None)
        number += 1


def newest(directory: Path) -> Any:
    """The newest checkpoint of a linear model; fails the test where one is damaged."""
    model = LinearModel()
    groups = (model.parameters, model.optimizer_state)
    kinds = [{name: Kind(a.shape, a.dtype) for name, a in group.items()} for group in groups]
    return checkpoints.newest(directory, Contents(*kinds), pytest.fail)
