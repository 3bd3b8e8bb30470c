"""What users pass in and get back: one array, or a dict by node name when there are several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from znnpy.errors import ShapeError
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

    With `one_image`, arrays of one image stand for all images of their node.
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
    found = {name: np.asarray(array, dtype) for name, array in given.items()}
    wanted = {node.name: (batch, node.images, *shapes[node.name]) for node in nodes}
    return {name: _checked(found[name], wanted[name], what, name, one_image) for name in names}


def _checked(
    found: Floats, shape: tuple[int, ...], what: str, node: str, one_image: bool
) -> Floats:
    if one_image and found.shape == (shape[0], 1, *shape[2:]):
        return np.broadcast_to(found, shape)
    if found.shape != shape:
        raise ShapeError(
            f"{what} of node {node!r}: shape {describe(found.shape)}, but this model takes "
            f"{describe(shape)} (batch, image, z, y, x)"
        )
    return found


def alone(arrays: Mapping[str, Floats]) -> Floats | dict[str, Floats]:
    """The single array, or the dict when there are several."""
    return dict(arrays) if len(arrays) > 1 else next(iter(arrays.values()))
