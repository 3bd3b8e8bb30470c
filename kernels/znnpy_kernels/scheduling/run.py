"""The kernel of a run: calls of other kernels one after the other, in one task."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.memory import address_of
from znnpy_kernels.machine.native import call_kernel

AT = words("calls")


@kernel(AT)
def run_in_turn(args: Any, worker: int) -> None:
    """Call kernels in turn.

    Behind the number of calls stand for each the address of its kernel, how many words it takes, and these.
    """
    place = 1
    for _ in range(args[AT.calls]):
        call_kernel(args[place], address_of(args) + 8 * (place + 2), worker)
        place += 2 + args[place + 1]
