"""Values that entries share: triples along z, y, x, and how a parameter starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Triple = tuple[int, int, int]
ONCE: Triple = (1, 1, 1)
InitKind = Literal["he", "xavier", "uniform", "normal", "constant"]


@dataclass(frozen=True)
class Init:
    """How a filter bank or bias starts.

    `he`: normal, std sqrt(2 / fan_in); `xavier`: uniform on +-sqrt(6 / (fan_in + fan_out));
    `uniform`: on [low, high]; `normal`: mean, std; `constant`: value.
    """

    kind: InitKind = "he"
    low: float = -0.1
    high: float = 0.1
    mean: float = 0.0
    std: float = 0.01
    value: float = 0.0
