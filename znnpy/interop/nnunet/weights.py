"""The parameters of a checkpoint of nnU-Net by their names here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.errors import ModelFileError
from znnpy.interop.model import Arrays
from znnpy.interop.nnunet.architecture import Architecture
from znnpy.interop.nnunet.names import Place, first_name, places, plain_name
from znnpy.network.parameters import parameter_shapes
from znnpy.network.types import Network
from znnpy.weights.stored_tensor import Array, Tensor
from znnpy.weights.torch_file import read_torch

_SHOWN = 3  # names in an error
_COUNTERS = "num_batches_tracked"  # of batch norms: not used where momentum is given


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return what a checkpoint holds; ModelFileError where it is none of nnU-Net v2."""
    found = read_torch(path)
    if not isinstance(found, dict) or not isinstance(found.get("network_weights"), dict):
        raise ModelFileError(f"{path} is no checkpoint of nnU-Net v2: it has no network_weights")
    return found


def parameters_of(path: Path, architecture: Architecture, network: Network) -> Arrays:
    """Return all parameters of a checkpoint, float32, in the shapes of a network; ModelFileError names what differs."""
    tensors = _tensors(read_checkpoint(path)["network_weights"], path)
    wanted, shapes = places(architecture, network), parameter_shapes(network)
    unknown = [name for name in tensors if name not in wanted]
    missing = [name for name, to in wanted.items() if to.name in shapes and name not in tensors]
    for names, words in ((unknown, "which its plans do not describe"), (missing, "missing")):
        if names:
            raise ModelFileError(f"{path}: {_few(names)}: {words}; the net is another than PlainConvUNet or "
                                 "ResidualEncoderUNet, or changed by its trainer")  # fmt: skip
    found = {}
    for name, tensor in tensors.items():
        to = wanted[name]
        if to.name not in shapes:
            raise ModelFileError(f"{path}: {name}: which its plans do not describe")
        found[to.name] = _placed(path, name, tensor, to, shapes[to.name])
    return found


def _tensors(state: Mapping[Any, Any], path: Path) -> dict[str, Tensor]:
    """Return the tensors by their first names; those that are kept under several must be the same."""
    named = {plain_name(str(name)): value for name, value in state.items()}
    found: dict[str, Tensor] = {}
    for name, value in named.items():
        if name.endswith(_COUNTERS):
            continue
        if not isinstance(value, Tensor):
            raise ModelFileError(f"{path}: {name[:80]} is no tensor")
        first = first_name(name, named)
        if first != name and named.get(first) is not None and not _same(value, named[first]):
            raise ModelFileError(
                f"{path}: {name[:80]} and {first[:80]} differ, and are one parameter"
            )
        found[first] = named.get(first, value)
    return found


def _same(one: Tensor, other: Any) -> bool:
    if not isinstance(other, Tensor):
        return False
    return one.place == other.place or np.array_equal(one.array(), other.array())


def _placed(path: Path, name: str, tensor: Tensor, to: Place, shape: tuple[int, ...]) -> Array:
    array = tensor.array()
    if array.dtype.kind != "f":
        raise ModelFileError(f"{path}: {name} holds {array.dtype}, no floating-point numbers")
    if array.ndim == 4 and len(shape) == 5:  # of a flat net
        array = array[:, :, None]
    if to.transposed:
        array = array.swapaxes(0, 1)
    if array.shape != shape:
        raise ModelFileError(f"{path}: {name} has shape {array.shape}, and {shape} by its plans")
    if to.turned:
        array = np.roll(array, -to.turned, axis=1)
    found = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(found).all():
        raise ModelFileError(f"{path}: {name} has values that are not finite")
    return found


def _few(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(name[:80] for name in names[:_SHOWN]) + (
        f" and {more} more" if more > 0 else ""
    )
