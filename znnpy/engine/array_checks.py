"""Checks the arrays that a model is given: inputs, targets, weights, parameters and optimiser states."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike
from znnpy_kernels.data.target_values import all_taken

from znnpy.engine.memory.arrays import (
    Arrays,
    ByName,
    Floats,
    by_node,
    listed,
    numbers,
    refuse_mask,
    refuse_weights,
    unmasked,
)
from znnpy.errors import ShapeError, ZnnpyError
from znnpy.fields import of_python, shown
from znnpy.file_arrays import FileArray
from znnpy.geometry import Geometry, describe
from znnpy.learning.loss import Objective
from znnpy.learning.readings import Taken
from znnpy.network import Network, parameter_shapes
from znnpy.network.objectives import Objectives
from znnpy.network.parameters import repeated, repeats_of
from znnpy.network.types import Node, Triple

VARIANCES = (".running_variance", "/variance")
"""Endings of the names of arrays that are never negative."""
# Every finite float64 is allowed; a whole number of Python may be larger than that.
LARGEST = sys.float_info.max
Batch = tuple[dict[str, Floats], dict[str, Floats], dict[str, Floats]]
"""Inputs, targets and weights, by node."""


@dataclass(frozen=True)
class Given:
    """Checks arrays for one network: `samples` samples, of `dtype`, with targets that `losses` take."""

    network: Network
    geometry: Geometry
    losses: Objectives
    samples: int
    dtype: type[np.floating[Any]]

    def inputs(self, x: Arrays) -> dict[str, Floats]:
        """Return checked inputs by node; ShapeError says which one is wrong."""
        if (plain := self._plain(x, self._input_shapes)) is not None:
            return plain
        shapes = self.geometry.input_shapes
        # Inputs cannot be masked: a hidden voxel has no value that a filter could read.
        inputs = by_node(x, self.network.inputs, self.samples, shapes, "input", self.dtype)
        for name, array in inputs.items():
            refuse_mask(array, f"input of node {name!r}")
        return inputs

    def batch(self, x: Arrays, target: Arrays, weight: Arrays | None) -> Batch:
        """Return checked inputs, targets and weights; ZnnpyError for targets that a loss does not take."""
        weights: dict[str, Floats] = {}
        targets = self._plain(target, self._target_shapes) if weight is None else None
        if targets is None:
            targets, weights = self._counting(target, weight)
        for name, array in targets.items():
            if name in weights or not _plainly_taken(self._taken[name], array):
                _refuse_target(name, self.losses[name], array, weights.get(name))
        return self.inputs(x), targets, weights

    def _counting(
        self, target: Arrays, weight: Arrays | None
    ) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Return targets and weights by node, of which masks have become part."""
        shapes, outputs = self.geometry.output_shapes, self.network.outputs
        samples, kind = self.samples, self.dtype
        targets = by_node(target, outputs, samples, shapes, "target", kind)
        weights: dict[str, Floats] = {}
        if weight is not None:
            weights = by_node(weight, outputs, samples, shapes, "weight", kind, one_channel=True)
            refuse_weights(weights)
        whole = {name for name, loss in self.losses.items() if loss.reading.whole_voxels}
        # Masks become weights of 0, so that kernels know of weights alone.
        return unmasked(targets, weights, whole_voxels=whole)

    @cached_property
    def _input_shapes(self) -> dict[str, tuple[int, ...]]:
        return self._shapes(self.network.inputs, self.geometry.input_shapes)

    @cached_property
    def _target_shapes(self) -> dict[str, tuple[int, ...]]:
        return self._shapes(self.network.outputs, self.geometry.output_shapes)

    @cached_property
    def _taken(self) -> dict[str, Taken]:
        return {name: objective.reading.target for name, objective in self.losses.items()}

    def _shapes(
        self, nodes: Sequence[Node], shapes: Mapping[str, Triple]
    ) -> dict[str, tuple[int, ...]]:
        return {node.name: (self.samples, node.channels, *shapes[node.name]) for node in nodes}

    def _plain(
        self, given: Arrays, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, Floats] | None:
        """Return arrays by node if each is what it would be made, as most are; None for others.

        In few steps: Python runs from cold caches between updates, on a core that could run tasks.
        """
        arrays = given if isinstance(given, dict) else dict.fromkeys(shapes, given)
        if arrays.keys() != shapes.keys() or (arrays is not given and len(shapes) > 1):
            return None
        for name, shape in shapes.items():
            array = arrays[name]
            # Not of a subclass: those may be masked.
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != self.dtype:
                return None
        return dict(arrays)

    def parameters(self, values: Mapping[str, ArrayLike]) -> dict[str, Floats | FileArray]:
        """Return some parameters by name, checked; filters with `repeat` get the mean of each block of taps.

        What lies in a file is left there.
        """
        shapes, repeats = parameter_shapes(self.network), repeats_of(self.network)
        _refuse_other(values, "parameters")
        unknown = listed({name: None for name in values if name not in shapes})
        if unknown:
            raise ShapeError(f"no parameter {unknown[0]!r}; this network has {sorted(shapes)}")
        return {
            # Filters with equal taps must begin equal: updates keep them so, and never make them
            # so.
            name: array
            if name not in repeats and self._lies_in_file(array, shapes[name])
            else repeated(self._shaped(name, array, shapes[name]), repeats.get(name))
            for name, array in values.items()
        }

    def _lies_in_file(self, array: ArrayLike, shape: tuple[int, ...]) -> TypeGuard[FileArray]:
        if not isinstance(array, FileArray):
            return False
        return array.shape == shape and np.dtype(array.dtype) == np.float32 == self.dtype

    def states(self, values: Mapping[str, ArrayLike], expected: ByName) -> dict[str, Floats]:
        """Return all buffers of an optimiser by name, checked against the shapes of `expected`."""
        _refuse_other(values, "optimizer state")
        if set(values) != set(expected):
            raise ShapeError(
                f"optimizer state: found {listed(values)}, this model needs {sorted(expected)}"
            )
        repeats, found = repeats_of(self.network), dict[str, Floats]()
        for key, known in expected.items():
            own = self._shaped(key, values[key], known.shape)
            found[key] = repeated(own, repeats.get(key.rpartition("/")[0]))
        return found

    def _shaped(self, name: str, array: ArrayLike, shape: tuple[int, ...]) -> Floats:
        refuse_mask(array, f"parameter {name!r}")
        found = numbers(array, self.dtype, f"parameter {name!r}")
        if found.shape != shape:
            raise ShapeError(
                f"parameter {name!r}: shape {describe(found.shape)}, but this network has {describe(shape)}"
            )
        # Written so that NaN is refused as well.
        if name.endswith(VARIANCES) and not found.min() >= 0:
            raise ZnnpyError(f"parameter {name!r}: {found.min()} among them, which no variance is")
        return found


def learning_rate_of(given: Any) -> float:
    """Return a finite number of at least 0 as a float; ZnnpyError for anything else."""
    # As nearly all are: this is asked before each update.
    if type(given) is float and 0 <= given <= LARGEST:
        return given
    plain = of_python(given)
    # `type`, not isinstance: a bool is an int. The comparison is false for NaN, and LARGEST rules
    # out infinity and whole numbers that no float holds.
    if type(plain) not in (int, float) or not 0 <= plain <= LARGEST:
        raise ZnnpyError(
            f"learning_rate: must be a finite number of at least 0; found {shown(given)}"
        )
    return float(plain)


def whole_number_of(name: str, given: Any, least: int = 0, most: int = 2**63 - 1) -> int:
    """Return a whole number from `least` to `most` as an int; ZnnpyError for anything else."""
    plain = of_python(given)
    if type(plain) is not int or not least <= plain <= most:
        raise ZnnpyError(
            f"{name}: must be a whole number from {least} to {most}; found {shown(given)}"
        )
    return plain


def _refuse_other(values: Any, what: str) -> None:
    if not isinstance(values, Mapping):
        raise ShapeError(
            f"{what}: must be a mapping from names to arrays; found {shown(type(values).__name__)}"
        )


def _plainly_taken(taken: Taken, target: Floats) -> bool:
    """Return whether all values are good, by one quick look in compiled code; False also where it cannot look."""
    if target.dtype != np.float32 or not target.flags.c_contiguous:
        return False
    samples, channels = target.shape[:2]
    voxels = target.size // (samples * channels)
    place = target.__array_interface__["data"][0]
    return bool(all_taken(place, samples, channels, voxels, *taken.bounds))


def _refuse_target(name: str, objective: Objective, target: Floats, weight: Floats | None) -> None:
    """Raise ZnnpyError for values that a loss does not take, at voxels whose weight is not 0."""
    counts = None if weight is None else objective.counting(weight, target.shape)
    # Few passes over all values; which one is wrong is only found out for the message.
    if objective.reading.target.takes(target, None if counts is None else counts[:, 0]):
        return
    taken = objective.reading.taken(objective.keys.kind)
    wrong = taken.wrong(target)
    if counts is not None:
        # A target that weighs 0 may be anything, also NaN.
        wrong = wrong & (counts != 0)
    if not wrong.any():
        return
    # The first wrong value; all that follows is for the message.
    place = np.unravel_index(int(wrong.argmax()), wrong.shape)
    where, more = tuple(map(int, place)), int(wrong.sum()) - 1
    value, channels = target[place], np.moveaxis(target, 1, -1)[place[:1] + place[2:]]
    found = f"channels that sum to {channels.sum():g}" if taken.inside(value) else f"{value:g}"
    raise ZnnpyError(
        f"target of node {name!r}: {found} at (sample, channel, z, y, x) = {where}, and {more} more; "
        f"{taken.words}. Voxels that do not count weigh 0"
    )
