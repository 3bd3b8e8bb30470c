"""What one step tells: its loss and error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepResult:
    """Loss and share of wrong voxels of one step, weighted means; of several outputs, sums by their factors."""

    loss: float
    error: float
