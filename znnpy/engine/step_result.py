"""What one step tells: its loss and error."""

from __future__ import annotations

from dataclasses import dataclass

from znnpy.errors import ZnnpyError

KEPT = 1 << 14
"""Results of updates: thousands of other threads may come before one asks for its own, as locks are not fair."""


@dataclass(frozen=True)
class StepResult:
    """Loss and share of wrong voxels of one step, weighted means.

    Of several outputs the sum of losses times their factors, and the mean of shares by these factors.
    """

    loss: float
    error: float


def refuse_ticket(ticket: int, submitted: int) -> None:
    """ZnnpyError for an update whose result is not kept, where so many were submitted."""
    first = max(0, submitted - KEPT)
    if not first <= ticket < submitted:
        known = f"{first} to {submitted - 1} are kept" if submitted else "no update was submitted"
        raise ZnnpyError(f"there is no result of ticket {ticket}: {known}")
