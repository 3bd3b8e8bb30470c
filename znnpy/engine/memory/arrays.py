"""Converts and checks the arrays that users pass in: dtype, shape, masks, weights; one array or a dict by node."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from znnpy.errors import ShapeError, ZnnpyError, reason
from znnpy.geometry import describe
from znnpy.network.types import Node, Triple

T = TypeVar("T")
Floats = NDArray[Any]  # float32, or float64 at that precision
ByName = Mapping[str, Floats]
Arrays = ArrayLike | Mapping[str, ArrayLike]


def by_node(
    given: Arrays,
    nodes: tuple[Node, ...],
    batch: int,
    shapes: Mapping[str, Triple],
    what: str,
    dtype: type[np.floating[Any]],
    *,
    one_channel: bool = False,
) -> dict[str, Floats]:
    """Return arrays by node name as `dtype`, (batch, channel, z, y, x); ShapeError says which one is wrong.

    With `one_channel`, arrays of one channel stand for all channels of their node. Masked arrays stay masked if
    anything in them is. Arrays of the right dtype are not copied.
    """
    names = [node.name for node in nodes]
    if not isinstance(given, Mapping):
        if len(names) > 1:
            raise ShapeError(
                f"{what}: this network has {names}; pass a dict with one array for each"
            )
        given = {names[0]: given}
    if set(given) != set(names):
        raise ShapeError(f"{what}: arrays for {listed(given)}, but the network has {names}")
    found = {name: numbers(given[name], dtype, f"{what} of node {name!r}") for name in names}
    wanted = {node.name: (batch, node.channels, *shapes[node.name]) for node in nodes}
    return {name: _checked(found[name], wanted[name], what, name, one_channel) for name in names}


def _checked(
    found: Floats, shape: tuple[int, ...], what: str, node: str, one_channel: bool
) -> Floats:
    if one_channel and found.shape == (shape[0], 1, *shape[2:]):
        if np.ma.isMaskedArray(found):
            hidden = np.broadcast_to(np.ma.getmaskarray(found), shape)
            return np.ma.array(np.broadcast_to(np.ma.getdata(found), shape), mask=hidden)
        return np.broadcast_to(found, shape)
    if found.shape != shape:
        raise ShapeError(
            f"{what} of node {node!r}: shape {describe(found.shape)}, but this model takes "
            f"{describe(shape)} (batch, channel, z, y, x)"
        )
    return found


def unmasked(
    targets: ByName, weights: ByName, *, whole_voxels: Collection[str]
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return targets and weights without masks: what a mask hides weighs 0, for `whole_voxels` in all channels."""
    plain, counted = dict(targets), dict(weights)
    for name, target in targets.items():
        hidden: Any = np.ma.getmask(target) | np.ma.getmask(weights.get(name, target))
        # The usual case costs no copy.
        if not np.any(hidden):  # nor is either a masked array
            continue
        if name in whole_voxels:
            hidden = hidden.any(axis=1, keepdims=True)
        plain[name] = np.ma.getdata(target)
        weight = np.ma.getdata(weights[name]) if name in weights else np.ones_like(plain[name])
        counted[name] = np.where(hidden, weight.dtype.type(0), weight)
    return plain, counted


def refuse_mask(array: ArrayLike, what: str) -> None:
    """Raise ShapeError for a masked array: nothing says what its hidden numbers should be."""
    if np.ma.is_masked(array):
        hidden = int(np.sum(np.ma.getmask(array)))
        raise ShapeError(
            f"{what}: {hidden} numbers are hidden by a NumPy mask; fill them first, "
            "such as array.filled(0)"
        )


def refuse_weights(weights: ByName) -> None:
    """Raise ZnnpyError for weights that are negative or not finite, where no mask hides them."""
    for name, weight in weights.items():
        seen = weight.compressed() if np.ma.isMaskedArray(weight) else weight
        least, most = seen.min(initial=0), seen.max(initial=0)
        # Written so that NaN fails as well.
        if not (least >= 0 and most < inf):
            wrong = least if not least >= 0 else most
            raise ZnnpyError(
                f"weight of node {name!r}: {wrong} among them; weights must be finite and at least 0"
            )


NUMBERS = {"b": "truth values", "i": "integers", "u": "integers", "f": "floats"}
"""NumPy's kinds of dtype whose values are numbers, with words for messages."""


def numbers(array: ArrayLike, dtype: type[np.floating[Any]], what: str) -> Floats:
    """Return an array as `dtype`, without a copy if it is; ShapeError, beginning with `what`, if it holds no numbers.

    Masked arrays stay masked if anything in them is.
    """
    found = _array(array, what)
    if found.dtype.kind not in NUMBERS:
        raise ShapeError(
            f"{what}: an array of {found.dtype.name or found.dtype}; numbers are booleans, integers and floats"
        )
    try:
        # float64 numbers beyond float32 would become infinite in silence.
        with np.errstate(over="raise"):
            return found if found.dtype == dtype else found.astype(dtype)
    except FloatingPointError:
        raise ShapeError(f"{what}: some numbers are too large for {np.dtype(dtype).name}") from None


def _array(array: ArrayLike, what: str) -> Floats:
    """Return what NumPy makes of an object; ShapeError for whatever that raises."""
    try:
        return np.ma.asarray(array) if np.ma.is_masked(array) else np.asarray(array)
    # NumPy calls methods of whatever it is given, which may raise anything.
    except Exception as error:
        raise ShapeError(f"{what}: is no array: {reason(error)}") from error


def listed(names: Mapping[Any, Any]) -> list[str]:
    """Return given names as sorted text; they may be of any type."""
    return sorted(map(str, names))


def joined(parts: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    """Return arrays by name, those of all parts concatenated along the first axis."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def alone(by_node: Mapping[str, T]) -> T | dict[str, T]:
    """Return the only value of a dict, or a copy of the dict if it has several."""
    return dict(by_node) if len(by_node) > 1 else next(iter(by_node.values()))
