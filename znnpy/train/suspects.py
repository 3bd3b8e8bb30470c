"""What the last updates were fed, when a loss is no longer finite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

LARGE = 1e4  # normalised inputs and targets of any use are far below
Images = npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]]


def suspects(fed: Iterable[tuple[str, Images | None]]) -> tuple[str, bool]:
    """What is known of arrays (what they are, arrays or by node), and whether they are to blame.

    Names the first that holds NaN or Inf with its place (batch, image, z, y, x), else the largest
    beyond `LARGE`, else the ranges.
    """
    arrays = [(what, array) for what, given in fed for array in _arrays(given)]
    for what, array in arrays:
        bad = ~np.isfinite(array)
        if bad.any():
            place = tuple(int(n) for n in np.argwhere(bad)[0])
            return (
                f"{int(bad.sum())} of {array.size} {what} are not finite, the first {array[place]} at "
                f"{place} (batch, image, z, y, x)"
            ), True
    sizes = [(float(np.abs(array).max(initial=0)), what) for what, array in arrays]
    if sizes and max(sizes)[0] > LARGE:
        return f"{max(sizes)[1]} reach {max(sizes)[0]:g} in size", True
    return ", ".join(_range(what, arrays) for what in dict.fromkeys(w for w, _ in arrays)), False


def _range(what: str, arrays: Iterable[tuple[str, npt.NDArray[Any]]]) -> str:
    low = min(float(array.min()) for name, array in arrays if name == what)
    high = max(float(array.max()) for name, array in arrays if name == what)
    return f"{what} from {low:.4g} to {high:.4g}"


def _arrays(given: Images | None) -> list[npt.NDArray[Any]]:
    if given is None:
        return []
    return [np.asarray(a) for a in (given.values() if isinstance(given, Mapping) else [given])]
