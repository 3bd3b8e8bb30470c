"""The form of a loss's entry, `Loss` (keys, outputs that it takes, float64 definition, kernel), and `Objective`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import ShapeError
from znnpy.fields import Strict
from znnpy.learning.readings import CHANNELS, Reading

Array = NDArray[Any]
Doubles = NDArray[np.float64]


class LossKeys(Strict):
    """The keys of a loss; `kind` is its name."""

    kind: Any


@dataclass(frozen=True)
class Part:
    """A term that adds up over patches: a loss is the sum of total / weight over its parts, 0 where nothing weighs.

    `gradient()`: of the total for the output's values, in their shape.
    """

    total: float
    weight: float
    gradient: Callable[[], Doubles]


class Parts(Protocol):
    """`parts(keys, reading, values, target, weight)` of one output, float64 (..., channel, z, y, x).

    The weight has one channel where voxels have one weight; targets that weigh 0 are 0.
    """

    def __call__(
        self, keys: Any, reading: Reading, values: Doubles, target: Doubles, weight: Doubles, /
    ) -> Sequence[Part]:
        """The parts of the loss."""


@dataclass(frozen=True, kw_only=True)
class LossKernel:
    """How a loss is computed in float32.

    `gradient`: the kernel of loss and gradient, or "module:name" of it. Its words begin as those of
    `znnpy_kernels.layers.loss_rows`; the loss's own numbers may follow. `biases`: it applies the gradient of a relu, as
    `relu_slope` says, and adds up that of the bias.
    `sums`: the kernel of sums over whole feature maps, which come before the gradient (losses of overlap).
    `pairs`: weights are shares of pairs of voxels (MALIS).
    """

    gradient: Any
    biases: bool = False
    sums: Any = None
    pairs: bool = False


def _alike(keys: Any, reading: Reading, channels: int) -> Sequence[float]:
    return [1.0] * channels


def _as_given(keys: Any, values: Doubles, target: Doubles, weight: Doubles) -> Doubles:
    return weight


def _none(keys: Any) -> Mapping[str, float]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One kind of losses.

    `keys`: as users write them. `readings`: what it can take an output's values for, with the kernel that
    computes it then, None where float64 alone does. Where
    there are several, the output's function says which. `parts`: the meaning. `example`: keys for the
    template. `refused(keys, reading, channels)`: why an output of so many channels cannot be trained, "" if
    it can; `neighbours(keys)`: offsets (z, y, x) at which it joins voxels, none of which may lie apart.

    For the kernel: `numbers(keys)`: words, those that are not 0. `table(keys)`: whole numbers that it
    reads, three for each channel at most. `class_weights(keys, reading, channels)`: how much each channel
    counts; `weighs_mean(keys)`: in the mean over voxels too. `reweighed(keys, values, target, weight)`:
    weights that follow from the values, as constants; `by_sample`: the mean is over samples, not weights.

    `aliases`: other libraries' names for it, in small letters.
    """

    name: str
    keys: type[LossKeys]
    readings: Mapping[Reading, LossKernel | None]
    parts: Parts
    numbers: Callable[[Any], Mapping[str, float]] = _none
    class_weights: Callable[[Any, Reading, int], Sequence[float]] = _alike
    table: Callable[[Any], Sequence[int]] = lambda keys: ()
    reweighed: Callable[[Any, Doubles, Doubles, Doubles], Doubles] = _as_given
    by_sample: bool = False
    neighbours: Callable[[Any], Sequence[Sequence[int]]] = lambda keys: ()
    weighs_mean: Callable[[Any], bool] = lambda keys: False
    refused: Callable[[Any, Reading, int], str] = lambda keys, reading, channels: ""
    example: str = ""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Objective:
    """A loss at one output: with its keys, what it takes the output's values for, and its factor."""

    loss: Loss
    keys: LossKeys
    reading: Reading
    factor: float = 1.0

    @property
    def kernel(self) -> LossKernel | None:
        """How it is computed in float32; None where it is not."""
        return self.loss.readings[self.reading]

    @property
    def numbers(self) -> Mapping[str, float]:
        """Words of the kernel, those that are not 0."""
        return self.loss.numbers(self.keys)

    def class_weights(self, channels: int) -> Doubles:
        """Return how much each channel of the output counts."""
        return np.array(self.loss.class_weights(self.keys, self.reading, channels), np.float64)

    def parts(self, values: Array, target: Array, weight: Array) -> Sequence[Part]:
        """The parts of the loss of values, for weights as `voxel_weight` gives them; see `Parts`.

        A target that weighs 0 may be NaN or Inf; values may not.
        """
        full, known = self._known(values, target, weight)
        return self.loss.parts(self.keys, self.reading, values.astype(np.float64), known, full)

    def value_and_gradient(
        self,
        values: Doubles,
        target: Doubles,
        weight: Doubles | None = None,
        whole: Sequence[float] | None = None,
    ) -> tuple[float, Doubles]:
        """The loss of an output, times its factor, and the gradient for the output node's values, a new array.

        No weight means 1 everywhere; weights that sum to 0 give loss and gradient 0. All arrays are
        (batch, channel, z, y, x); a weight may also have 1 channel, and where voxels have one weight the
        first channel is read only. `whole`: the `part_weights` of all samples, where these are some of them.
        Raises ShapeError when shapes differ.
        """
        counted = self._counted(values, target, weight, whole)
        gradient = np.zeros(values.shape)
        for part, of in counted:
            gradient += part.gradient() / of
        return self.factor * _total(counted), self.factor * gradient

    def value(
        self,
        values: Doubles,
        target: Doubles,
        weight: Doubles | None = None,
        whole: Sequence[float] | None = None,
    ) -> float:
        """The loss of an output, times its factor; see `value_and_gradient`."""
        return self.factor * _total(self._counted(values, target, weight, whole))

    def _counted(
        self,
        values: Doubles,
        target: Doubles,
        weight: Doubles | None,
        whole: Sequence[float] | None,
    ) -> list[tuple[Part, float]]:
        """The parts that weigh anything, and by what each is divided."""
        parts = self._whole_parts(values, target, weight)
        weights = [part.weight for part in parts] if whole is None else whole
        return [(part, of) for part, of in zip(parts, weights, strict=True) if of]

    def part_weights(
        self, values: Doubles, target: Doubles, weight: Doubles | None = None
    ) -> list[float]:
        """The weights of the parts, which add up over samples."""
        return [part.weight for part in self._whole_parts(values, target, weight)]

    def _whole_parts(
        self, values: Doubles, target: Doubles, weight: Doubles | None
    ) -> Sequence[Part]:
        if target.shape != values.shape:
            raise ShapeError(f"target has shape {target.shape}, the output has {values.shape}")
        return self.parts(values, target, self.counting(weight, values.shape))

    def total_weights(self, target: Array, weight: Array | None) -> tuple[float, float]:
        """Sum of the weights that the mean loss is of, and of those that the error is a share of.

        Arrays are (batch, channel, z, y, x).
        """
        total = self._total(target, weight)
        if self.loss.by_sample:
            return float(len(target)), float(len(target))
        if self.loss.weighs_mean(self.keys):
            shape, classes = target.shape, self.class_weights(target.shape[CHANNELS])
            full = self.counting(weight, shape)
            known = np.where(full != 0, target, 0.0)
            return float((class_mass(known, classes) * full).sum(dtype=np.float64)), total
        return total, total

    def _total(self, target: Array, weight: Array | None) -> float:
        if weight is None:
            whole = self.reading.whole_voxels
            return float(target.size // target.shape[CHANNELS] if whole else target.size)
        counting = weight[:, 0] if self.reading.whole_voxels else weight
        return float(counting.sum(dtype=np.float64))

    def error(self, values: Array, target: Array, weight: Array) -> tuple[float, float]:
        """Weight of what is on the wrong side, and weight of all; weights as `voxel_weight` gives them."""
        full, _ = self._known(values, target, weight)
        wrong = float(np.sum(self.reading.wrong(values, target) * full))
        return wrong, samples(values) if self.loss.by_sample else float(np.sum(full))

    def _known(self, values: Array, target: Array, weight: Array) -> tuple[Doubles, Doubles]:
        """Return weights of values, and targets, 0 where they do not count."""
        full = weight.astype(np.float64)
        known = np.where(full != 0, target, 0.0).astype(np.float64)
        return self.loss.reweighed(self.keys, values.astype(np.float64), known, full), known

    def counting(self, weight: Doubles | None, shape: tuple[int, ...]) -> Doubles:
        """A weight for each loss of values (batch, channel, z, y, x): 1 without, or those of the first channel."""
        one = (shape[0], 1, *shape[2:])
        if weight is None:
            weight = np.ones(one)
        if weight.shape not in (shape, one):
            raise ShapeError(
                f"weight has shape {weight.shape}; {shape} or {one} fits (batch, channel, z, y, x)"
            )
        channels = 1 if self.reading.whole_voxels else shape[1]
        return np.broadcast_to(weight[:, :channels], (shape[0], channels, *shape[2:]))


def _total(counted: Sequence[tuple[Part, float]]) -> float:
    return float(sum(part.total / of for part, of in counted))


def samples(values: Array) -> float:
    """Return how many samples values (..., channel, z, y, x) hold."""
    return float(np.prod(values.shape[:CHANNELS]))


def class_mass(target: Array, classes: Doubles) -> Doubles:
    """Return how much the classes of each voxel weigh, (..., 1, z, y, x)."""
    along = classes[:, None, None, None]
    return np.asarray((target * along).sum(axis=CHANNELS, keepdims=True))


def mean(losses: Doubles, slopes: Callable[[], Doubles], weight: Doubles) -> Part:
    """The weighted mean of losses by voxel; `slopes()` are those of the unweighted ones."""
    return Part(float((losses * weight).sum()), float(weight.sum()), lambda: slopes() * weight)
