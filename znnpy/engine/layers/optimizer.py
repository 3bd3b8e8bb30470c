"""How parameters move: the optimiser's settings and the block of numbers that its kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from znnpy_kernels.layers.optimizers import HYPERPARAMETERS, adam, sgd
from znnpy_kernels.machine.abi import Kernel

from znnpy.config import check_section
from znnpy.config.training_section import Adam, Sgd
from znnpy.errors import ZnnpyError


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
        if self.kind not in ("sgd", "adam"):
            raise ZnnpyError(f"optimizer {self.kind!r} is not one of sgd, adam")
        if self.decoupled and self.kind == "sgd":
            raise ZnnpyError(
                "optimizer: decoupled weight decay is AdamW's, of kind adam, not of sgd"
            )
        for section, kind in ((Sgd, "sgd"), (Adam, "adam")):
            given = {name: getattr(self, name) for name in section.model_fields}
            check_section(section, given | {"kind": kind}, "optimizer")

    @property
    def kernel(self) -> Kernel:
        """The update's kernel."""
        return adam if self.kind == "adam" else sgd

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the buffers kept for each parameter, as the kernel's fields call them."""
        if self.kind == "adam":
            return ("mean", "variance")
        return ("momentum",) if self.momentum else ()

    def hyperparameters(self, learning_rate: float, update: int, *, decay: bool) -> list[float]:
        """Values in the kernels' order for update number `update`, counted from 1."""
        values: dict[str, float] = {
            "learning_rate": learning_rate,
            "weight_decay": self.weight_decay if decay else 0.0,
            "momentum": self.momentum if self.kind == "sgd" else 0.0,
            "nesterov": self.nesterov,
            "beta1": self.beta1,
            "beta2": self.beta2,
            "eps": self.eps,
            "decoupled": self.decoupled,
            "correction1": 1 - self.beta1**update,
            "correction2": 1 - self.beta2**update,
        }
        return [float(values[name]) for name in HYPERPARAMETERS]
