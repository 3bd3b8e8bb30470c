"""How parameters move: the optimiser's settings and the block of numbers that its kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from znnpy_kernels.layers.optimizers import HYPERPARAMETERS
from znnpy_kernels.layers.optimizers import OPTIMIZERS as KERNELS
from znnpy_kernels.machine.abi import Kernel

from znnpy.config import check_section
from znnpy.errors import ZnnpyError
from znnpy.learning.optimizers import OPTIMIZERS, OptimizerKind


@dataclass(frozen=True)
class Optimizer:
    """Stochastic gradient descent with momentum, or Adam; definitions as in PyTorch.

    `weight_decay` is added to the gradient of filters, never of biases; with `decoupled` it shrinks
    them directly (AdamW, so with Adam alone). Values are those that a config may hold; ZnnpyError says
    which is not.
    """

    kind: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decoupled: bool = False

    def __post_init__(self) -> None:
        if self.kind not in OPTIMIZERS:
            raise ZnnpyError(f"optimizer {self.kind!r} is not one of {', '.join(OPTIMIZERS)}")
        if self.decoupled and not self.entry.decouples:
            raise ZnnpyError(
                f"optimizer: decoupled weight decay is AdamW's, of kind adam, not of {self.kind}"
            )
        for kind in OPTIMIZERS.values():
            given = {name: getattr(self, name) for name in kind.keys.model_fields}
            check_section(kind.keys, given | {"kind": kind.name}, "optimizer")

    @property
    def entry(self) -> OptimizerKind:
        """What there is to say of its kind."""
        return OPTIMIZERS[self.kind]

    @property
    def kernel(self) -> Kernel:
        """The update's kernel."""
        return KERNELS[self.kind]

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the buffers kept for each parameter, as the kernel's fields call them."""
        return self.entry.states(self)

    def hyperparameters(self, learning_rate: float, update: int, *, decay: bool) -> list[float]:
        """Values in the kernels' order for update number `update`, counted from 1."""
        values: dict[str, float] = {
            "learning_rate": learning_rate,
            "weight_decay": self.weight_decay if decay else 0.0,
            "momentum": self.momentum,
            "nesterov": self.nesterov,
            "beta1": self.beta1,
            "beta2": self.beta2,
            "eps": self.eps,
            "decoupled": self.decoupled,
            "correction1": 1 - self.beta1**update,
            "correction2": 1 - self.beta2**update,
        }
        return [float(values[name]) for name in HYPERPARAMETERS]
