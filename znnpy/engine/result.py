"""What one step tells: its loss and error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepResult:
    """Loss and share of wrong voxels of one step, weighted means.

    Of several outputs the sum of losses times their factors, and the mean of shares by these factors.
    """

    loss: float
    error: float
