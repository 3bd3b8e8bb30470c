"""How parameters move: the optimiser's settings and the block of numbers that its kernels read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from znnpy_kernels.layers.optimizers import HYPERPARAMETERS
from znnpy_kernels.layers.optimizers import OPTIMIZERS as KERNELS
from znnpy_kernels.machine.abi import Kernel

from znnpy.config import check_section
from znnpy.errors import PlanError, ZnnpyError
from znnpy.fields import Bool, Strict
from znnpy.learning.optimizers import OPTIMIZERS, AnyOptimizer, OptimizerKeys, OptimizerKind


class _Own(Strict):
    """What no config has."""

    decoupled: Bool


class _Named(Strict):
    """As a config has it."""

    optimizer: AnyOptimizer


@dataclass(frozen=True)
class Optimizer:
    """One of `OPTIMIZERS`, with its numbers and those of others, which it does not look at; definitions as in PyTorch.

    `weight_decay` is added to the gradient of filters, never of biases; with `decoupled` it shrinks
    them directly (AdamW, so with Adam alone). Values are those that a config may hold; ZnnpyError says
    which is not.
    """

    kind: str = "sgd"
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decoupled: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in OPTIMIZERS:
            raise ZnnpyError(f"optimizer {self.kind!r} is not one of {', '.join(OPTIMIZERS)}")
        self._take(_Own, {"decoupled": self.decoupled})
        for kind in OPTIMIZERS.values():
            given = {name: getattr(self, name) for name in kind.keys.model_fields}
            self._take(kind.keys, given | {"kind": kind.name})
        if self.decoupled and not self.entry.decouples:
            kinds = " or ".join(kind.name for kind in OPTIMIZERS.values() if kind.decouples)
            raise ZnnpyError(
                f"optimizer: decoupled weight decay is AdamW's, of kind {kinds}, not of {self.kind}"
            )

    def _take(self, section: type[Strict], given: Mapping[str, Any]) -> None:
        """Have plain numbers where NumPy's were given, once they are what a section takes."""
        keys = check_section(section, given, "optimizer")
        for name in given:
            if name != "kind":
                object.__setattr__(self, name, getattr(keys, name))

    @classmethod
    def of(cls, given: Any) -> Optimizer:
        """Itself, or one of a name or a mapping as a config has it, or of its keys; ConfigError for others."""
        if isinstance(given, cls):
            return given
        if given is None:
            return cls()
        if not isinstance(given, OptimizerKeys):
            given = check_section(_Named, {"optimizer": given}, "Model").optimizer
        return cls(**given.model_dump())

    @property
    def entry(self) -> OptimizerKind:
        """What there is to say of its kind."""
        return OPTIMIZERS[self.kind]

    @property
    def kernel(self) -> Kernel:
        """The update's kernel; PlanError where there is none."""
        if self.kind not in KERNELS:
            raise PlanError(
                f"optimizer {self.kind} has no kernel in float32; precision float64 runs it"
            )
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
