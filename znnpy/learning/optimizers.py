"""The optimisers: keys, what they keep of each parameter, and their definitions in float64, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from znnpy.fields import Bool, Fraction, NonNegative, Positive, Strict, shorthand, wrong

Doubles = NDArray[np.float64]
_DECAY = "Weight decay: this times the filters is added to their gradient (biases: none)."


class OptimizerKeys(Strict):
    """The keys of an optimiser; `kind` is its name."""

    kind: Any


class Sgd(OptimizerKeys):
    """Stochastic gradient descent with momentum."""

    kind: Literal["sgd"] = Field(description="Optimizer.")
    momentum: Fraction = Field(default=0.9, description="Momentum, in [0, 1).")
    nesterov: Bool = Field(default=False, description="Nesterov's momentum.")
    weight_decay: NonNegative = Field(default=0.0, description=_DECAY)

    @model_validator(mode="after")
    def _nesterov(self) -> Sgd:
        if self.nesterov and self.momentum == 0:
            raise wrong("needs a momentum above 0", "nesterov")
        return self


class Adam(OptimizerKeys):
    """Adam (Kingma and Ba 2014)."""

    kind: Literal["adam"] = Field(description="Optimizer.")
    beta1: Fraction = Field(default=0.9, description="Decay of the mean of gradients, in [0, 1).")
    beta2: Fraction = Field(default=0.999, description="Decay of the mean of squares, in [0, 1).")
    eps: Positive = Field(default=1e-8, description="Added to the root of the mean of squares.")
    weight_decay: NonNegative = Field(default=0.0, description=_DECAY)


class Numbers(Protocol):
    """The numbers of all optimisers: each takes those that it knows."""

    @property
    def momentum(self) -> float:
        """Of sgd."""

    @property
    def nesterov(self) -> bool:
        """Of sgd."""

    @property
    def beta1(self) -> float:
        """Of adam."""

    @property
    def beta2(self) -> float:
        """Of adam."""

    @property
    def eps(self) -> float:
        """Of adam."""


States = Mapping[str, Doubles]


@dataclass(frozen=True, kw_only=True)
class OptimizerKind:
    """One optimiser; its kernel has its name in `znnpy_kernels.layers.optimizers.OPTIMIZERS`.

    `states(numbers)`: names of the arrays kept for each parameter, as the kernel's words call them.
    `step(numbers, gradient, states, update)`: what the learning rate times is taken off a parameter, for
    update number `update` from 1 on; changes the states in place. `squares`: those states that are never below 0.
    `decouples`: weight decay may shrink
    filters beside the gradient.
    """

    name: str
    keys: type[OptimizerKeys]
    states: Callable[[Numbers], tuple[str, ...]]
    step: Callable[[Numbers, Doubles, States, int], Doubles]
    squares: tuple[str, ...] = ()
    decouples: bool = False

    @property
    def example(self) -> str:
        """All its keys with their defaults, as a config has them."""
        fields = {name: field.default for name, field in self.keys.model_fields.items()}
        written = [f"{key}: {_written(it)}" for key, it in (fields | {"kind": self.name}).items()]
        return "{" + ", ".join(written) + "}"


def _written(value: Any) -> str:
    """A plain value in YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _sgd(numbers: Numbers, gradient: Doubles, states: States, update: int) -> Doubles:
    if not numbers.momentum:
        return gradient
    momentum = states["momentum"]
    momentum[...] = numbers.momentum * momentum + gradient
    return gradient + numbers.momentum * momentum if numbers.nesterov else momentum


def _adam(numbers: Numbers, gradient: Doubles, states: States, update: int) -> Doubles:
    mean, variance = states["mean"], states["variance"]
    mean += (1 - numbers.beta1) * (gradient - mean)
    variance += (1 - numbers.beta2) * (gradient**2 - variance)
    root = np.sqrt(variance / (1 - numbers.beta2**update)) + numbers.eps
    step: Doubles = mean / (1 - numbers.beta1**update) / root
    return step


_ALL = (
    OptimizerKind(
        name="sgd",
        keys=Sgd,
        states=lambda numbers: ("momentum",) if numbers.momentum else (),
        step=_sgd,
    ),
    OptimizerKind(
        name="adam",
        keys=Adam,
        states=lambda numbers: ("mean", "variance"),
        step=_adam,
        squares=("variance",),
        decouples=True,
    ),
)
OPTIMIZERS: dict[str, OptimizerKind] = {kind.name: kind for kind in _ALL}

if TYPE_CHECKING:
    AnyOptimizer = OptimizerKeys
else:  # the keys of one of all optimisers, or its name alone
    AnyOptimizer = Annotated[
        Annotated[
            reduce(or_, [kind.keys for kind in OPTIMIZERS.values()]), Field(discriminator="kind")
        ],
        shorthand("kind", str),
    ]
