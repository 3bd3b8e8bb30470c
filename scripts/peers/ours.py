"""Contestants, and znnpy as one of them; needs no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

import znnpy
from peers.cases import Case

LEARNING_RATE = 0.01
MOMENTUM = 0.9
SEED = 0  # of the first weights
Arrays = Mapping[str, NDArray[np.float32]]


class Contestant(Protocol):
    """Whoever can compute a case's results, and run it on a fixed sample."""

    def results(self, seed: int) -> tuple[float, Arrays]:
        """Of the sample of that seed: loss and gradients by name; mean size and output of inference."""

    def run(self, count: int) -> None:
        """So many updates, or forward passes, on sample 0 in a row, complete when this returns."""


class Znnpy:
    """znnpy through its public interface."""

    def __init__(self, case: Case, threads: int, conv: str) -> None:
        self.case = case
        self.input, self.target = case.sample()
        self.model = znnpy.Model(
            case.network,
            output_shape=case.output_shape,
            batch=case.batch,
            threads=threads,
            seed=SEED,
            conv=conv,
            loss=case.loss,
            optimizer=znnpy.Optimizer("sgd", momentum=MOMENTUM),
            training=case.training,
        )
        self.parameters: Arrays = {
            name: np.array(value) for name, value in self.model.parameters.items()
        }

    def results(self, seed: int) -> tuple[float, Arrays]:
        if self.case.training:
            return self.model.loss_and_gradients(*self.case.sample(seed))
        return output_results(self.model.forward(self.case.sample(seed)[0]))

    def run(self, count: int) -> None:
        for _ in range(count):
            if self.case.training:
                self.model.step(self.input, self.target, learning_rate=LEARNING_RATE)
            else:
                self.model.forward(self.input)
        if self.case.training:
            self.model.drain()

    def close(self) -> None:
        """Stop the worker threads."""
        self.model.close()


def output_results(values: NDArray[np.float32]) -> tuple[float, Arrays]:
    return float(np.abs(values).mean(dtype=np.float64)), {"output": np.array(values)}
