"""Arrays of what other programs hand over, and results as they expect them: NumPy's, or tensors of PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import ArgumentError

Floats = NDArray[Any]


def array_of(given: Any) -> tuple[Floats, Callable[[Floats], Any]]:
    """Return an array or tensor as an array, and what makes results the kind, on the device, that was given.

    PyTorch is not imported: whoever has a tensor has it. Raises ArgumentError for anything else.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        plain = given.as_subclass(torch.Tensor) if type(given) is not torch.Tensor else given
        dtype = plain.dtype if plain.is_floating_point() else torch.float32

        def tensor(found: Floats) -> Any:
            return torch.from_numpy(found).to(device=plain.device, dtype=dtype)

        # NumPy has no bfloat16.
        wide = plain.detach().cpu().to(torch.float32) if plain.is_floating_point() else plain.cpu()
        return wide.numpy(), tensor
    if not isinstance(given, np.ndarray) or given.dtype.kind not in "biuf":
        raise ArgumentError(
            f"a patch must be an array of numbers or a tensor; found {type(given).__name__}"
        )
    return given, lambda found: found
