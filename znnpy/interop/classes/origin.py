"""Weights under the names of the class that a network was taken over from, as its `load_state_dict` takes them.

They are turned round (`interop/turned_round.py`). Then they are taken over once more, and must be the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import ExportError, ZnnpyError
from znnpy.interop.classes.registry import CLASSES, NetClass, taken_over
from znnpy.interop.classes.state import COUNTER, State
from znnpy.interop.operators.described import Described
from znnpy.interop.turned_round import Arrays, refuse_other, turned_round
from znnpy.weights.stored_tensor import Storage, Tensor

MOST_LEFT = 1 << 18  # numbers, which stand in a file of text


def network_of(
    found: NetClass, arguments: Mapping[str, Any], tensors: Mapping[Any, Any], where: str
) -> Described:
    """Return the net of a class, its arguments and its state dict as nodes, edges and parameters.

    Raises ModelFileError for arguments, layers and tensors that are not supported or do not fit each other.
    """
    state = State(tensors, where)
    net = taken_over(found, arguments, state)
    origin = Origin.of(found.name, arguments, tensors, state)
    return net if origin is None else replace(net, origin=origin.said)


@dataclass(frozen=True)
class Origin:
    """A class, its arguments, and the shapes of all tensors of its state dict, in their order.

    `left`: numbers of tensors that predictions do not need, such as heads of coarser outputs.
    """

    name: str
    arguments: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    left: Mapping[str, list[float]]

    @classmethod
    def of(
        cls, name: str, arguments: Mapping[str, Any], tensors: Mapping[Any, Any], state: State
    ) -> Self | None:
        """Return what a state dict was of; None for arguments that JSON does not have, or if too much was left."""
        shapes = {State.bare(str(key)): tensor.shape for key, tensor in tensors.items()}
        if sum(state.tensors[key].size for key in state.left) > MOST_LEFT:
            return None
        left = {key: state.tensors[key].array().ravel().tolist() for key in state.left}
        try:
            return cls.read(json.loads(json.dumps(cls(name, arguments, shapes, left).said)))
        except (TypeError, ValueError):
            return None

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Self:
        """Return what `said` gave; ValueError for anything else."""
        name: Any = value.get("class")
        arguments, tensors, left = value.get("arguments"), value.get("tensors"), value.get("left")
        known = isinstance(name, str) and name in CLASSES
        if not (known and isinstance(arguments, dict) and isinstance(left, dict)):
            raise ValueError("it has no class with its arguments")
        if not isinstance(tensors, list) or not all(map(_is_named, tensors)):
            raise ValueError("its tensors are no list of names and shapes")
        shapes = {key: tuple(shape) for key, shape in tensors}
        if not all(key in shapes and _is_filled(it, shapes[key]) for key, it in left.items()):
            raise ValueError("a tensor that was left has not its numbers")
        return cls(name, arguments, shapes, left)

    @property
    def said(self) -> dict[str, Any]:
        """The origin as JSON values."""
        return {
            "class": self.name,
            "arguments": dict(self.arguments),
            "tensors": [[name, list(shape)] for name, shape in self.shapes.items()],
            "left": dict(self.left),
        }

    def state_dict(self, parameters: Arrays) -> dict[str, NDArray[Any]]:
        """Return a network's parameters as the state dict of the class.

        Raises ExportError where they are no longer those of the class, as after other changes than training.
        """
        own = sum(prod(shape) for name, shape in self.shapes.items() if name not in self.left)
        # Some classes name a parameter up to four times.
        if own > 8 * sum(array.size for array in parameters.values()):
            raise ExportError(f"no state dict of {self.name}: the run has far fewer parameters")
        try:
            found = self._turned(parameters)
            refuse_other(self._taken(found).parameters, parameters)
        except ZnnpyError as error:
            raise ExportError(f"no state dict of {self.name}: {error}") from error
        return found

    def _turned(self, parameters: Arrays) -> dict[str, NDArray[Any]]:
        floats = {name: it for name, it in self.shapes.items() if not name.endswith(COUNTER)}
        probe = _Probe({}, self.name)

        def made(arrays: Arrays) -> Arrays:
            nonlocal probe
            probe = _Probe(_tensors(arrays), self.name)
            return self._build(probe).parameters

        turned = turned_round(floats, made, parameters)
        found: dict[str, NDArray[Any]] = {}
        for name, shape in self.shapes.items():
            if name not in floats:
                found[name] = np.zeros(shape, np.int64)  # updates of a norm that nobody counted
            elif name in self.left:
                found[name] = np.array(self.left[name], np.float32).reshape(shape)
            else:
                found[name] = turned[name]
        for again, first in probe.names.items():  # of one parameter
            found[again] = found[first]
        for name, array in found.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ExportError(f"{name} was not taken over")
        return found

    def _taken(self, arrays: Arrays) -> Described:
        floats = {name: it for name, it in arrays.items() if not name.endswith(COUNTER)}
        return self._build(_Probe(_tensors(floats), self.name))

    def _build(self, state: State) -> Described:
        return taken_over(CLASSES[self.name], self.arguments, state)


class _Probe(State):
    """A state that keeps which names are of one parameter, as (again, first)."""

    def __init__(self, tensors: Mapping[Any, Any], where: str) -> None:
        super().__init__(tensors, where)
        self.names: dict[str, str] = {}

    def same(self, again: str, first: str) -> None:
        """Take all that begins with `again`, whatever it holds."""
        for name in self.below(again):
            other = first + name.removeprefix(again)
            if other in self.tensors:
                self.names[name] = other
                self.taken.add(name)


def _is_named(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):
        return False
    shape = value[1]
    return isinstance(shape, list) and all(type(it) is int and 0 <= it < 1 << 40 for it in shape)


def _is_filled(value: Any, shape: tuple[int, ...]) -> bool:
    return (
        isinstance(value, list)
        and len(value) == prod(shape)
        and all(type(it) is float for it in value)
    )


def _tensors(arrays: Arrays) -> dict[str, Tensor]:
    """Return arrays as tensors of a file."""
    found = {}
    for name, array in arrays.items():
        plain = np.ascontiguousarray(array, "<f4")
        steps = tuple(prod(plain.shape[axis + 1 :]) for axis in range(plain.ndim))
        storage = Storage(name, "<f4", plain.size, plain.reshape(-1).view(np.uint8).view)
        found[name] = Tensor(storage, 0, plain.shape, steps)
    return found
