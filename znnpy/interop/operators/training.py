"""The section `training` of a net that was taken over: sizes of patches, a loss that its outputs go with."""

from __future__ import annotations

from typing import Any

from znnpy.errors import ModelFileError, NetworkError
from znnpy.geometry.axes import describe
from znnpy.geometry.finest_outputs import finest
from znnpy.geometry.shape_inference import largest, smallest
from znnpy.interop.operators.described import Described
from znnpy.network.types import Network, Triple

WIDEST = 64  # voxels along an axis of a patch for training, where the net says none
LOSSES = {"logistic": "binomial_cross_entropy", "softmax": "softmax"}
SQUARE = "square"
CLASSES = {"kind": "labels"}


def training_keys(found: Described, *, fixed: bool) -> dict[str, Any]:
    """Return keys of training; `fixed`: patches are as large as the example that the net was read with.

    Raises ModelFileError for nets that no size fits here, and for outputs that differ in size though not in voxel
    size: patches of a run have one size.
    """
    _refuse_apart(found)
    try:
        shapes = _possible(found, None if fixed else WIDEST)
    except NetworkError as error:
        said = "; ".join(str(error).splitlines())
        raise ModelFileError(
            f"{said}; voxels that a stride leaves over are not dropped here, but for padding"
        ) from error
    first, *others = shapes.values()
    keys: dict[str, Any] = {
        "output_shape": list(first)
        if not others or all(s == first for s in others)
        else _finest(shapes),
        "loss": _common(found.network) or SQUARE,
    }
    if _common(found.network) is None:
        keys["outputs"] = _apart(found.network)
    if found.frozen:
        keys["freeze"] = list(found.frozen)
    return keys


def loss_for(network: Network) -> str | dict[str, Any]:
    """Return a loss that the functions of all outputs go with, or else the keys of one for each output, by name."""
    return _common(network) or {name: {"kind": loss} for name, loss in _losses(network).items()}


def _losses(network: Network) -> dict[str, str]:
    return {node.name: LOSSES.get(node.function, SQUARE) for node in network.outputs}


def _common(network: Network) -> str | None:
    found = set(_losses(network).values())
    return found.pop() if len(found) == 1 else None


def _apart(network: Network) -> dict[str, Any]:
    """Return the section of outputs of which some learn classes, and others something else."""
    return {
        name: {"loss": loss} | ({"target": CLASSES} if loss == LOSSES["softmax"] else {})
        for name, loss in _losses(network).items()
    }


def target_for(network: Network) -> Any:
    """Return a target that the outputs go with: class numbers for softmax, else unknown."""
    classes = all(node.function == "softmax" for node in network.outputs)
    return CLASSES if classes else "unknown"


def _refuse_apart(found: Described) -> None:
    names = [node.name for node in finest(found.network).outputs]
    if len({found.shapes[name] for name in names}) > 1:
        told = ", ".join(f"{name} of {describe(found.shapes[name])}" for name in names)
        raise ModelFileError(
            f"outputs have different sizes, {told} voxels (z, y, x), and those of a run have one; crop them in the net"
        )


def _possible(found: Described, widest: int | None) -> dict[str, Triple]:
    """Return shapes of outputs that are possible here, at most those of the example; NetworkError where none is."""
    if widest is None and len(found.shapes) > 1:
        return dict(found.shapes)
    limits = {}
    for name, (z, y, x) in found.shapes.items():
        most = widest or max(z, y, x)
        limits[name] = (min(z, most), min(y, most), min(x, most))
    shapes = largest(found.network, limits)
    if shapes or len(found.shapes) > 1:
        return shapes or dict(found.shapes)
    return {name: smallest(found.network) for name in found.shapes}


def _finest(shapes: dict[str, Triple]) -> list[int]:
    return list(max(shapes.values()))
