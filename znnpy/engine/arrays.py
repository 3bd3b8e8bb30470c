"""What users pass in and get back: one array, or a dict by node name when there are several."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from znnpy.errors import ShapeError
from znnpy.geometry import describe
from znnpy.network.types import Node, Triple

Floats = NDArray[np.float32]
Arrays = ArrayLike | Mapping[str, ArrayLike]


def by_node(
    given: Arrays,
    nodes: tuple[Node, ...],
    batch: int,
    shapes: Mapping[str, Triple],
    what: str,
    *,
    one_image: bool = False,
) -> dict[str, Floats]:
    """Arrays by node name as float32 (batch, image, z, y, x); ShapeError says which one is wrong.

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
    return {
        node.name: _checked(
            given[node.name], (batch, node.images, *shapes[node.name]), what, node, one_image
        )
        for node in nodes
    }


def _checked(
    array: ArrayLike, shape: tuple[int, ...], what: str, node: Node, one_image: bool
) -> Floats:
    found = np.asarray(array, np.float32)
    if one_image and found.shape == (shape[0], 1, *shape[2:]):
        return np.broadcast_to(found, shape)
    if found.shape != shape:
        raise ShapeError(
            f"{what} of node {node.name!r}: shape {describe(found.shape)}, but this model takes "
            f"{describe(shape)} (batch, image, z, y, x)"
        )
    return found


def alone(arrays: Mapping[str, Floats]) -> Floats | dict[str, Floats]:
    """The single array, or the dict when there are several."""
    return dict(arrays) if len(arrays) > 1 else next(iter(arrays.values()))
