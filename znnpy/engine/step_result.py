"""`StepResult`: the loss and error of one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from znnpy.errors import ZnnpyError

KEPT = 1 << 14
"""Results that are kept: locks are not fair, so thousands of updates may come before a thread asks for its own."""


@dataclass(frozen=True)
class StepResult:
    """Loss and share of wrong voxels of one step, both weighted means over voxels.

    With several outputs: the sum of losses times their factors, and the mean of shares weighted by these factors.
    `losses`: the terms of that sum, by output node.
    """

    loss: float
    error: float
    losses: Mapping[str, float] = field(default_factory=dict, compare=False)


def refuse_ticket(ticket: int, submitted: int) -> None:
    """Raise ZnnpyError for a ticket whose result is not kept, after `submitted` updates."""
    # The same bound by which engines drop results.
    first = max(0, submitted - KEPT)
    if not first <= ticket < submitted:
        known = f"{first} to {submitted - 1} are kept" if submitted else "no update was submitted"
        raise ZnnpyError(f"there is no result of ticket {ticket}: {known}")
