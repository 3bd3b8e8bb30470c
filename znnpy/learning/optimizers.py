"""The optimisers (sgd, adam, lamb, lars ...): keys, states kept for each parameter, float64 formulas as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from znnpy.fields import Bool, Fraction, NonNegative, Positive, Strict, shorthand, wrong
from znnpy.registered_types import registered
from znnpy.registry import Registry

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


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    kind: Literal["adamw"] = Field(description="Optimizer.")  # type: ignore[assignment]
    weight_decay: NonNegative = Field(
        default=0.01,
        description="Weight decay: the learning rate times this times the filters is taken off them (biases: none).",
    )


class Lamb(Adam):
    """Adam's step, scaled layer by layer to the norm of the filters, for large batches (LAMB, You et al. 2020)."""

    kind: Literal["lamb"] = Field(description="Optimizer.")  # type: ignore[assignment]
    eps: Positive = Field(default=1e-6, description="Added to the root of the mean of squares.")
    weight_decay: NonNegative = Field(
        default=0.01,
        description="Weight decay: this times the filters is added to the step, before it is scaled (biases: none).",
    )


class Lars(OptimizerKeys):
    """SGD, its gradient scaled layer by layer to the norm of the filters, for large batches (LARS, You et al. 2017)."""

    kind: Literal["lars"] = Field(description="Optimizer.")
    momentum: Fraction = Field(default=0.9, description="Momentum, in [0, 1).")
    weight_decay: NonNegative = Field(
        default=5e-4,
        description="Weight decay: this times the filters is added to their gradient, before it is scaled "
        "(biases: none).",
    )
    trust: Positive = Field(
        default=1e-3,
        description="Largest norm of the gradient, with the decay in it, as a share of that of the filters.",
    )


AVERAGE = "average"
"""The state that an exponential moving average of a parameter is kept in, beside those of the optimiser."""


def averaged(
    parameters: Mapping[str, Any], states: Mapping[str, Any], frozen: Collection[str] = ()
) -> dict[str, Any]:
    """Return arrays by parameter, with the moving averages among the states in place of what is learned."""
    # The average of what is frozen never begins.
    moved = {name: states.get(f"{name}/{AVERAGE}") for name in parameters if name not in frozen}
    return {
        name: values if (average := moved.get(name)) is None else average
        for name, values in parameters.items()
    }


def average_share(decay: float, update: int) -> float:
    """Return the share by which an average moves towards a parameter after update number `update`, from 1 on.

    1 minus the decay; early on more, that the average may forget where training began: after n updates the decay is
    at most (1 + n) / (10 + n). The first update begins the average.
    """
    before = update - 1
    return 1.0 if before == 0 else 1.0 - min(decay, (1 + before) / (10 + before))


class Now(NamedTuple):
    """The state of training that an update's numbers follow from, beside its keys.

    `update`: counted from 1. `weight_decay`: that of the keys for filters, 0 for biases.
    """

    learning_rate: float
    update: int
    weight_decay: float
    decoupled: bool


States = Mapping[str, Doubles]


@dataclass(frozen=True, kw_only=True)
class OptimizerKind:
    """One optimiser.

    `keys`: as users write them, with `weight_decay` among them if filters may decay. `states(keys)`: names of
    the arrays kept for each parameter, as the kernel's words call them.
    `step(keys, gradient, states, update)`: what the learning rate times is taken off a parameter, for
    update number `update` from 1 on; changes the states in place. `squares`: those states that are never below 0.
    `decouples`: weight decay may shrink filters beside the gradient; `decoupled`: it always does. `aliases`: other
    libraries' names for it. `remembered(keys, states, update)`: squares of recent gradients as the states after so many
    updates tell them, for charts; None where they do not.

    `adapts`: the step of an edge's filters, with the decay in it, is scaled to the norm of the filters (`adapted`).
    `scaled(keys, filters, gradient, decay)`: what `step` is given for the filters of an edge, with the decay in it;
    None: the gradient with the decay added.

    `kernel`: of float32, or "module:name" of it; None: float64 alone runs it. Its words are `parameters gradient
    hyper scale length` and the states; `hyper(keys, now)`: the numbers that it reads, in its order; `counts`: they
    change with the number of the update.
    """

    name: str
    keys: type[OptimizerKeys]
    states: Callable[[Any], tuple[str, ...]]
    step: Callable[[Any, Doubles, States, int], Doubles]
    squares: tuple[str, ...] = ()
    decouples: bool = False
    decoupled: bool = False
    adapts: bool = False
    scaled: Callable[[Any, Doubles, Doubles, float], Doubles] | None = None
    kernel: Any = None
    norms: Any = None
    hyper: Callable[[Any, Now], Sequence[float]] = lambda keys, now: ()
    counts: bool = True
    aliases: tuple[str, ...] = ()
    remembered: Callable[[Any, Mapping[str, Any], int], Any] = lambda keys, states, update: None

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


def _sgd(keys: Any, gradient: Doubles, states: States, update: int) -> Doubles:
    if not keys.momentum:
        return gradient
    momentum = states["momentum"]
    momentum[...] = keys.momentum * momentum + gradient
    return gradient + keys.momentum * momentum if keys.nesterov else momentum


def _adam(keys: Any, gradient: Doubles, states: States, update: int) -> Doubles:
    mean, variance = states["mean"], states["variance"]
    mean += (1 - keys.beta1) * (gradient - mean)
    variance += (1 - keys.beta2) * (gradient**2 - variance)
    root = np.sqrt(variance / (1 - keys.beta2**update)) + keys.eps
    step: Doubles = mean / (1 - keys.beta1**update) / root
    return step


def adapted(filters: Doubles, step: Doubles) -> Doubles:
    """Return a step that is as long as the filters of the edge: times their Euclidean norm over its own.

    As it is where either is 0.
    """
    size, length = np.linalg.norm(filters), np.linalg.norm(step)
    scaled: Doubles = step * (size / length) if size > 0 and length > 0 else step
    return scaled


def _lars(keys: Any, gradient: Doubles, states: States, update: int) -> Doubles:
    if not keys.momentum:
        return gradient
    momentum = states["momentum"]
    momentum[...] = keys.momentum * momentum + gradient
    return momentum


def _lars_scaled(keys: Any, filters: Doubles, gradient: Doubles, decay: float) -> Doubles:
    """Return the gradient and the decay times trust |filters| / (|gradient| + decay |filters|); once where one is 0."""
    size, length = np.linalg.norm(filters), np.linalg.norm(gradient)
    ratio = keys.trust * size / (length + decay * size) if size > 0 and length > 0 else 1.0
    scaled: Doubles = ratio * (gradient + decay * filters)
    return scaled


def _sgd_remembered(keys: Any, states: Mapping[str, Any], update: int) -> Any:
    """The square of the mean gradient over about 1 / (1 - momentum) updates."""
    return ((1 - keys.momentum) * states["momentum"]) ** 2 if keys.momentum else None


def _adam_remembered(keys: Any, states: Mapping[str, Any], update: int) -> Any:
    """The mean square over about 1 / (1 - beta2) updates."""
    return states["variance"] / (1 - keys.beta2**update)


def _sgd_hyper(keys: Sgd, now: Now) -> Sequence[float]:
    return now.learning_rate, now.weight_decay, keys.momentum, keys.nesterov


def _lars_hyper(keys: Lars, now: Now) -> Sequence[float]:
    return now.learning_rate, now.weight_decay, keys.momentum, keys.trust


def _adam_hyper(keys: Adam, now: Now) -> Sequence[float]:
    return (
        now.learning_rate,
        now.weight_decay,
        keys.beta1,
        keys.beta2,
        keys.eps,
        now.decoupled,
        1 - keys.beta1**now.update,
        1 - keys.beta2**now.update,
    )


_ALL = (
    OptimizerKind(
        name="sgd",
        keys=Sgd,
        states=lambda keys: ("momentum",) if keys.momentum else (),
        step=_sgd,
        kernel="znnpy_kernels.layers.optimizers:sgd",
        hyper=_sgd_hyper,
        counts=False,
        remembered=_sgd_remembered,
    ),
    OptimizerKind(
        name="adam",
        keys=Adam,
        states=lambda keys: ("mean", "variance"),
        step=_adam,
        squares=("variance",),
        decouples=True,
        kernel="znnpy_kernels.layers.optimizers:adam",
        hyper=_adam_hyper,
        remembered=_adam_remembered,
    ),
    OptimizerKind(
        name="adamw",
        keys=AdamW,
        states=lambda keys: ("mean", "variance"),
        step=_adam,
        squares=("variance",),
        decouples=True,
        decoupled=True,
        kernel="znnpy_kernels.layers.optimizers:adam",
        hyper=_adam_hyper,
        remembered=_adam_remembered,
    ),
    OptimizerKind(
        name="lamb",
        keys=Lamb,
        states=lambda keys: ("mean", "variance"),
        step=_adam,
        squares=("variance",),
        adapts=True,
        kernel="znnpy_kernels.layers.layer_adaptation:lamb",
        norms="znnpy_kernels.layers.layer_adaptation:lamb_norms",
        hyper=_adam_hyper,
        remembered=_adam_remembered,
    ),
    OptimizerKind(
        name="lars",
        keys=Lars,
        states=lambda keys: ("momentum",) if keys.momentum else (),
        step=_lars,
        scaled=_lars_scaled,
        kernel="znnpy_kernels.layers.layer_adaptation:lars",
        norms="znnpy_kernels.layers.layer_adaptation:lars_norms",
        hyper=_lars_hyper,
        counts=False,
    ),
)
OPTIMIZERS = Registry[OptimizerKind]("optimizer", _ALL, key="optimizer")


def _any_optimizer() -> Any:
    keys = reduce(or_, [kind.keys for kind in OPTIMIZERS.values()])
    return Annotated[
        Annotated[keys, Field(discriminator="kind")],
        shorthand("kind", str),
    ]


if TYPE_CHECKING:
    AnyOptimizer = OptimizerKeys
else:  # the keys of one of all optimisers, or its name alone
    AnyOptimizer = registered(OPTIMIZERS, _any_optimizer)
