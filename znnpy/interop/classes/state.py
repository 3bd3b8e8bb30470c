"""`State`: the tensors of a state dict by name, each asked for with the shape that the class says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from znnpy.errors import ModelFileError
from znnpy.interop.operators.sketch import Floats
from znnpy.weights.stored_tensor import Tensor

PREFIXES = ("module.", "_orig_mod.")
"""What PyTorch's wrappers put before names."""
COUNTER = "num_batches_tracked"  # of norms: not used where momentum is given
_SHOWN = 3  # names in an error


class State:
    """Tensors by the names in the class; `where` names the file. What is asked for is taken; `refuse_rest` at the end.

    Raises ModelFileError for what is missing, has another shape or holds other values than floating-point numbers.
    """

    def __init__(self, tensors: Mapping[Any, Any], where: str) -> None:
        self.where = where
        self.tensors: dict[str, Tensor] = {}
        self.taken: set[str] = set()
        self.left: set[str] = set()  # taken, but of no use for predictions
        for given, tensor in tensors.items():
            name = self.bare(str(given))
            if not isinstance(tensor, Tensor):
                raise ModelFileError(
                    f"{where}: {name[:80]} is no tensor, as those of a state dict are"
                )
            if not name.endswith(COUNTER):
                self.tensors[name] = tensor

    @staticmethod
    def bare(name: str) -> str:
        """Return a name without what PyTorch's wrappers put before it."""
        while name.startswith(PREFIXES):
            name = name.removeprefix("module.").removeprefix("_orig_mod.")
        return name

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor that must be there."""
        if name not in self.tensors:
            raise ModelFileError(f"{self.where}: {name[:80]} is missing, which the class has")
        return self.tensors[name].shape

    def floats(self, name: str, shape: Sequence[int]) -> Floats:
        """Return a tensor as float32, read only where that is what the file holds: weights are in memory once."""
        if self.shape(name) != tuple(shape):
            raise ModelFileError(
                f"{self.where}: {name[:80]} has shape {self.shape(name)}, and {tuple(shape)} by the class's arguments"
            )
        try:
            found = self.tensors[name].array()
        except (ValueError, OSError) as error:
            raise ModelFileError(f"{self.where}: {name[:80]} cannot be read: {error}") from error
        if found.dtype.kind != "f":
            raise ModelFileError(
                f"{self.where}: {name[:80]} holds {found.dtype}, no floating-point numbers"
            )
        self.taken.add(name)
        return np.asarray(found, np.float32)

    def below(self, prefix: str) -> list[str]:
        """Return the names that begin so."""
        return [name for name in self.tensors if name.startswith(prefix)]

    def leave(self, prefix: str) -> bool:
        """Take what begins so without reading it; return whether there was any."""
        found = self.below(prefix)
        self.taken.update(found)
        self.left.update(found)
        return bool(found)

    def same(self, again: str, first: str) -> None:
        """Take all that begins with `again`, which must be the same as what begins with `first`."""
        for name in self.below(again):
            other = first + name.removeprefix(again)
            if other not in self.tensors:
                continue
            one, two = self.tensors[name], self.tensors[other]
            if one.place != two.place and not np.array_equal(one.array(), two.array()):
                raise ModelFileError(
                    f"{self.where}: {name[:80]} and {other[:80]} differ, and are one parameter of the class"
                )
            self.taken.add(name)

    def refuse_rest(self) -> None:
        """Raise ModelFileError for tensors that the class, with its arguments, does not have."""
        rest = [name for name in self.tensors if name not in self.taken]
        if rest:
            more = f" and {len(rest) - _SHOWN} more" if len(rest) > _SHOWN else ""
            names = ", ".join(name[:80] for name in rest[:_SHOWN])
            raise ModelFileError(
                f"{self.where}: {names}{more}: the class has none, with these arguments"
            )
