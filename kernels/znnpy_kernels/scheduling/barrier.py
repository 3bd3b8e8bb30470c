"""The kernel of barrier tasks, which do nothing: tasks after it wait for all tasks before it."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words


@kernel(words())
def wait_for_all(args: Any, worker: int) -> None:
    """Return at once."""
