"""Files of weights: what they hold, as data, and where in it the state dict of a net is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from znnpy.errors import ModelFileError
from znnpy.weights.pickled import Inert
from znnpy.weights.safetensors import read_safetensors
from znnpy.weights.stored_tensor import Tensor
from znnpy.weights.torch_file import read_torch

SAFE = ".safetensors"
SUFFIXES = (".pt", ".pth", ".pytorch", ".chkpt", ".ckpt", SAFE)
KEYS = ("model_state_dict", "state_dict", "model_state", "network_weights", "model")
"""What programs call the state dict in their checkpoints."""


def is_weights(path: Path) -> bool:
    """Return whether a path is a file of weights by its name."""
    return path.suffix.lower() in SUFFIXES and path.is_file()


def read_contents(path: Path) -> Mapping[Any, Any]:
    """Return what a file of weights holds, tensors unread; ModelFileError where that is no mapping."""
    found = read_safetensors(path) if path.suffix.lower() == SAFE else read_torch(path)
    if isinstance(found, Inert):
        raise ModelFileError(
            f"{path} holds an object of class {found.of[:80]}, whose code is not run: save the weights, "
            "torch.save(model.state_dict(), ...)"
        )
    if not isinstance(found, Mapping):
        raise ModelFileError(f"{path} holds a {type(found).__name__}, no state dict or checkpoint")
    return found


def state_of(contents: Mapping[Any, Any], path: Path) -> Mapping[Any, Any]:
    """Return the state dict within what a file holds: all of it, or what it keeps under a usual name."""
    if contents and all(isinstance(value, Tensor) for value in contents.values()):
        return contents
    for key in KEYS:
        if isinstance(contents.get(key), Mapping):
            inner: Mapping[Any, Any] = contents[key]
            return inner
    names = ", ".join(str(key)[:40] for key in list(contents)[:5]) or "nothing"
    raise ModelFileError(f"{path} holds {names}, and no state dict ({', '.join(KEYS)})")
