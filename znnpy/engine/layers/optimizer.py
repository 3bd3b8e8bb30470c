"""`Optimizer`: its kind and keys (momentum, betas, weight decay), and with the learning rate its kernel's numbers.

The formulas are in `learning/optimizers.py`, the kernels in `znnpy_kernels.layers.optimizers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from znnpy_kernels.machine.abi import Kernel

from znnpy.aliases import canonical
from znnpy.config import check_section
from znnpy.config.problems import suggestion
from znnpy.config.training_section import TrainingSection
from znnpy.engine.memory.staging import SHARE_AT
from znnpy.errors import PlanError, ZnnpyError
from znnpy.fields import Bool, Fraction, Strict
from znnpy.learning.optimizers import (
    AVERAGE,
    OPTIMIZERS,
    AnyOptimizer,
    Now,
    OptimizerKeys,
    OptimizerKind,
    average_share,
)
from znnpy.registry import resolved


class _Own(Strict):
    """Arguments that configs do not have."""

    decoupled: Bool
    ema: Fraction | None


class _Named(Strict):
    """The `optimizer` key of a config."""

    optimizer: AnyOptimizer


@dataclass(frozen=True, init=False)
class Optimizer:
    """An optimiser: one of `OPTIMIZERS` with its keys, which are its attributes too; definitions as in PyTorch.

    `numbers`: keys of its kind as a config holds them; those of other kinds are checked and ignored. sgd: `momentum`
    0.9, `nesterov`; adam, adamw, lamb: `beta1` 0.9, `beta2` 0.999, `eps` 1e-8 (lamb: 1e-6); sgd, adam: `weight_decay`
    0, which is added to the gradient of filters, never of biases; adamw: `weight_decay` 0.01, which shrinks filters
    directly, as adam's does with `decoupled`; lamb: 0.01, in the step; lars: `momentum` 0.9, `trust` 0.001,
    `weight_decay` 0.0005, in the scaled gradient. `ema`: decay, in [0, 1), of an exponential
    moving average of what is learned (`Model.averaged_parameters`); early on it is at most (1 + n) / (10 + n) after n
    updates. None: there is none.
    Raises ZnnpyError for a value that a config could not hold.
    """

    kind: str
    decoupled: bool
    keys: OptimizerKeys
    ema: float | None

    def __init__(
        self,
        kind: str = "sgd",
        *,
        decoupled: bool = False,
        ema: float | None = None,
        **numbers: Any,
    ) -> None:
        kind = canonical("optimizer", kind) if isinstance(kind, str) else kind
        if not isinstance(kind, str) or kind not in OPTIMIZERS:
            raise ZnnpyError(f"optimizer {kind!r} is not one of {', '.join(OPTIMIZERS)}")
        entry = OPTIMIZERS[kind]
        own = check_section(_Own, {"decoupled": decoupled, "ema": ema}, "optimizer")
        # The dataclass is frozen, and its own `__init__` would not check.
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "decoupled", own.decoupled or entry.decoupled)
        object.__setattr__(self, "ema", own.ema)
        object.__setattr__(self, "keys", _checked(entry, numbers))
        if own.decoupled and not entry.decouples:
            kinds = " or ".join(kind.name for kind in OPTIMIZERS.values() if kind.decouples)
            raise ZnnpyError(
                f"optimizer: decoupled weight decay is AdamW's, of kind {kinds}, not of {self.kind}"
            )

    def __getattr__(self, name: str) -> Any:
        """Return a key of its kind."""
        # By `__dict__`: while an Optimizer is unpickled or copied there are no keys yet, and `self.keys` would come
        # here again.
        keys = self.__dict__.get("keys")
        if keys is not None and name in type(keys).model_fields:
            return getattr(keys, name)
        kind = self.__dict__.get("kind", "sgd")
        raise AttributeError(f"an Optimizer of kind {kind} has no {name!r}")

    @classmethod
    def of(cls, given: Any) -> Optimizer:
        """Return an optimiser from one, from a name or mapping as in a config, or from keys; ConfigError for others."""
        if isinstance(given, cls):
            return given
        if given is None:
            return cls()
        if not isinstance(given, OptimizerKeys):
            given = check_section(_Named, {"optimizer": given}, "Model").optimizer
        return cls(**given.model_dump())

    @classmethod
    def trained(cls, training: TrainingSection) -> Optimizer:
        """Return the optimiser of a config's training, which keeps its moving average."""
        decay = training.ema.decay if training.ema else None
        return cls(**training.optimizer.model_dump(), ema=decay)

    @property
    def entry(self) -> OptimizerKind:
        """The entry of its kind."""
        return OPTIMIZERS[self.kind]

    @property
    def kernel(self) -> Kernel:
        """The kernel of an update; PlanError if float32 has none."""
        if self.entry.kernel is None:
            raise PlanError(
                f"optimizer {self.kind} has no kernel in float32; precision float64 runs it"
            )
        found: Kernel = resolved(self.entry.kernel)
        return found

    @property
    def norms(self) -> Kernel | None:
        """The kernel that comes before, over all of a parameter; None: there is none."""
        found: Kernel | None = resolved(self.entry.norms) if self.entry.norms else None
        return found

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the buffers kept for each parameter: as the kernel's fields call them, and the average's."""
        return (*self.own_states, *(() if self.ema is None else (AVERAGE,)))

    @property
    def own_states(self) -> tuple[str, ...]:
        """Names of the buffers that the kernel reads and writes."""
        return self.entry.states(self.keys)

    @property
    def counts(self) -> bool:
        """Whether the numbers that kernels read change from update to update, with one learning rate."""
        return self.entry.counts or self.ema is not None

    @property
    def weight_decay(self) -> float:
        """Weight decay of filters, 0 for kinds without."""
        return float(getattr(self.keys, "weight_decay", 0.0))

    def hyperparameters(
        self, learning_rate: float, update: int
    ) -> tuple[Sequence[float], Sequence[float]]:
        """Return what kernels read in update number `update`, counted from 1: for filters, and for all else.

        HYPER_WORDS numbers each: the optimiser's own in its kernel's order, zeros, and the share of the average.
        """
        decay = self.weight_decay
        filters = self._words(Now(learning_rate, update, decay, self.decoupled))
        # Nothing but filters decays.
        return filters, self._words(
            Now(learning_rate, update, 0.0, self.decoupled)
        ) if decay else filters

    def _words(self, now: Now) -> list[float]:
        values = [float(value) for value in self.entry.hyper(self.keys, now)]
        # The last is for the average; an entry from outside may want more.
        if len(values) > SHARE_AT:
            raise PlanError(
                f"optimizer {self.kind}: its kernel reads {len(values)} numbers; at most {SHARE_AT} fit"
            )
        share = 0.0 if self.ema is None else average_share(self.ema, now.update)
        return [*values, *(0.0 for _ in range(SHARE_AT - len(values))), share]


def _checked(entry: OptimizerKind, numbers: Mapping[str, Any]) -> OptimizerKeys:
    """Return the checked keys of a kind; keys of other kinds are checked too and dropped."""
    own = {name: numbers[name] for name in numbers if name in entry.keys.model_fields}
    keys = check_section(entry.keys, own | {"kind": entry.name}, "optimizer")
    # Keys of other kinds are accepted and dropped, so that one set of arguments can be tried with
    # several kinds.
    others = {name: value for name, value in numbers.items() if name not in own}
    for kind in OPTIMIZERS.values():
        taken = [name for name in others if name in kind.keys.model_fields]
        if taken:
            given = {name: others.pop(name) for name in taken}
            check_section(kind.keys, given | {"kind": kind.name}, "optimizer")
    if others:
        name, known = next(iter(others)), [*entry.keys.model_fields, "decoupled", "ema"]
        raise TypeError(f"Optimizer: unknown argument {name!r}{suggestion(name, known)}")
    return keys
