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

Stored = Tensor | Array
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
    return placed(read_checkpoint(path)["network_weights"], str(path), architecture, network)


def placed(
    state: Mapping[Any, Any], where: str, architecture: Architecture, network: Network
) -> Arrays:
    """Return all parameters of a state dict, of stored tensors or arrays, as `parameters_of` does of a file's."""
    tensors = _tensors(state, where)
    wanted, shapes = places(architecture, network), parameter_shapes(network)
    unknown = [name for name in tensors if name not in wanted]
    missing = [name for name, to in wanted.items() if to.name in shapes and name not in tensors]
    for names, words in ((unknown, "which its plans do not describe"), (missing, "missing")):
        if names:
            raise ModelFileError(f"{where}: {_few(names)}: {words}; the net is another than PlainConvUNet or "
                                 "ResidualEncoderUNet, or changed by its trainer")  # fmt: skip
    found = {}
    for name, tensor in tensors.items():
        to = wanted[name]
        if to.name not in shapes:
            raise ModelFileError(f"{where}: {name}: which its plans do not describe")
        found[to.name] = _placed(where, name, tensor, to, shapes[to.name])
    return found


def _tensors(state: Mapping[Any, Any], where: str) -> dict[str, Stored]:
    """Return the tensors by their first names; those that are kept under several must be the same."""
    named = {plain_name(str(name)): value for name, value in state.items()}
    found: dict[str, Stored] = {}
    for name, value in named.items():
        if name.endswith(_COUNTERS):
            continue
        if not isinstance(value, Tensor | np.ndarray):
            raise ModelFileError(f"{where}: {name[:80]} is no tensor")
        first = first_name(name, named)
        if first != name and named.get(first) is not None and not _same(value, named[first]):
            raise ModelFileError(
                f"{where}: {name[:80]} and {first[:80]} differ, and are one parameter"
            )
        found[first] = named.get(first, value)
    return found


def _same(one: Stored, other: Any) -> bool:
    if not isinstance(other, Tensor | np.ndarray):
        return False
    if isinstance(one, Tensor) and isinstance(other, Tensor) and one.place == other.place:
        return True
    return np.array_equal(_array(one), _array(other))


def _array(value: Stored) -> Array:
    return value.array() if isinstance(value, Tensor) else value


def _placed(where: str, name: str, value: Stored, to: Place, shape: tuple[int, ...]) -> Array:
    array = _array(value)
    if array.dtype.kind != "f":
        raise ModelFileError(f"{where}: {name} holds {array.dtype}, no floating-point numbers")
    if array.ndim == 4 and len(shape) == 5:  # of a flat net
        array = array[:, :, None]
    if to.transposed:
        array = array.swapaxes(0, 1)
    if array.shape != shape:
        raise ModelFileError(f"{where}: {name} has shape {array.shape}, and {shape} by its plans")
    if to.turned:
        array = np.roll(array, -to.turned, axis=1)
    found = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(found).all():
        raise ModelFileError(f"{where}: {name} has values that are not finite")
    return found


def _few(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(name[:80] for name in names[:_SHOWN]) + (
        f" and {more} more" if more > 0 else ""
    )
