"""Numbers that calls from Python give: Python's or NumPy's, of which others are refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from znnpy.errors import VolumeError
from znnpy.fields import of_python, shown

MOST = 2**63 - 1


def probability_of(name: str, given: Any) -> float:
    """Return a number from 0 to 1 as a float; VolumeError for anything else, NaN and bool too."""
    plain = of_python(given)
    # `type`, not isinstance: a bool is an int.
    if type(plain) not in (int, float) or not 0 <= plain <= 1:
        raise VolumeError(f"{name}: must be a probability, 0 to 1; found {shown(given)}")
    return float(plain)


def count_of(name: str, given: Any) -> int:
    """Return a whole number of at least 0, as large as arrays hold, as an int; VolumeError for anything else."""
    plain = of_python(given)
    if type(plain) is not int or not 0 <= plain <= MOST:
        raise VolumeError(f"{name}: must be a whole number, at least 0; found {shown(given)}")
    return plain


def distance_of(name: str, given: Any) -> float:
    """Return a number of at least 0 as a float; VolumeError for anything else, NaN and bool too."""
    plain = of_python(given)
    if type(plain) not in (int, float) or not 0 <= plain <= MOST:
        raise VolumeError(f"{name}: must be a number, at least 0; found {shown(given)}")
    return float(plain)


def three_of(given: Any, *kinds: type) -> tuple[Any, Any, Any] | None:
    """Return three numbers z, y, x of these types, of a sequence or an array, as Python's; None for anything else."""
    listed = given.tolist() if isinstance(given, np.ndarray) else given
    if not isinstance(listed, Sequence) or len(listed) != 3:
        return None
    z, y, x = (of_python(it) for it in listed)
    return (z, y, x) if {type(z), type(y), type(x)} <= set(kinds) else None
