"""What users pass in and get back: one array, or a dict by node name when there are several."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from znnpy.errors import ShapeError, ZnnpyError
from znnpy.geometry import describe
from znnpy.network.types import Node, Triple

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
    one_image: bool = False,
) -> dict[str, Floats]:
    """Arrays by node name as `dtype` (batch, image, z, y, x); ShapeError says which one is wrong.

    With `one_image`, arrays of one image stand for all images of their node. Masked arrays stay masked
    where something in them is.
    """
    names = [node.name for node in nodes]
    if not isinstance(given, Mapping):
        if len(names) > 1:
            raise ShapeError(
                f"{what}: this network has {names}; pass a dict with one array for each"
            )
        given = {names[0]: given}
    if set(given) != set(names):
        raise ShapeError(f"{what}: arrays for {sorted(given)}, but the network has {names}")
    found = {name: _floats(array, dtype) for name, array in given.items()}
    wanted = {node.name: (batch, node.images, *shapes[node.name]) for node in nodes}
    return {name: _checked(found[name], wanted[name], what, name, one_image) for name in names}


def _checked(
    found: Floats, shape: tuple[int, ...], what: str, node: str, one_image: bool
) -> Floats:
    if one_image and found.shape == (shape[0], 1, *shape[2:]):
        if np.ma.isMaskedArray(found):
            hidden = np.broadcast_to(np.ma.getmaskarray(found), shape)
            return np.ma.array(np.broadcast_to(np.ma.getdata(found), shape), mask=hidden)
        return np.broadcast_to(found, shape)
    if found.shape != shape:
        raise ShapeError(
            f"{what} of node {node!r}: shape {describe(found.shape)}, but this model takes "
            f"{describe(shape)} (batch, image, z, y, x)"
        )
    return found


def unmasked(
    targets: ByName, weights: ByName, *, whole_voxels: Collection[str]
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Plain targets and weights: what a mask hides weighs 0, of outputs of `whole_voxels` in all images."""
    plain, counted = dict(targets), dict(weights)
    for name, target in targets.items():
        hidden: Any = np.ma.getmask(target) | np.ma.getmask(weights.get(name, target))
        if not np.any(hidden):  # nor is either a masked array
            continue
        if name in whole_voxels:
            hidden = hidden.any(axis=1, keepdims=True)
        plain[name] = np.ma.getdata(target)
        weight = np.ma.getdata(weights[name]) if name in weights else np.ones_like(plain[name])
        counted[name] = np.where(hidden, weight.dtype.type(0), weight)
    return plain, counted


def refuse_mask(array: ArrayLike, what: str) -> None:
    """ShapeError for a masked array: nothing says what its hidden numbers shall be."""
    if np.ma.is_masked(array):
        hidden = int(np.sum(np.ma.getmask(array)))
        raise ShapeError(
            f"{what}: {hidden} numbers are hidden by a NumPy mask; fill them first, "
            "such as array.filled(0)"
        )


def refuse_weights(weights: ByName) -> None:
    """ZnnpyError for weights that are negative or not finite, where no mask hides them."""
    for name, weight in weights.items():
        seen = weight.compressed() if np.ma.isMaskedArray(weight) else weight
        least, most = seen.min(initial=0), seen.max(initial=0)
        if not (least >= 0 and most < inf):
            wrong = least if not least >= 0 else most
            raise ZnnpyError(
                f"weight of node {name!r}: {wrong} among them; weights must be finite and at least 0"
            )


def _floats(array: ArrayLike, dtype: type[np.floating[Any]]) -> Floats:
    if np.ma.is_masked(array):
        return np.ma.asarray(array, dtype)
    return np.asarray(array, dtype)


def joined(parts: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    """Arrays by name, those of all parts along their first axis."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def alone(arrays: Mapping[str, Floats]) -> Floats | dict[str, Floats]:
    """The single array, or the dict when there are several."""
    return dict(arrays) if len(arrays) > 1 else next(iter(arrays.values()))
