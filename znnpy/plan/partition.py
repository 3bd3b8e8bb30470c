"""Cuts work into tasks: ranges of planes along one axis, by shapes and estimated cost alone.

The cuts never depend on the number of threads: where they split a sum they change its last bits.
"""

from __future__ import annotations

from itertools import pairwise

from znnpy.network.types import Triple

# Of a task: some hundred times what a steal takes, so that scheduling costs little.
TARGET_SECONDS = 1e-4
# Short passes are cut as well, so that workers need not wait for a single one at their end.
FEWEST, LEAST_SECONDS = 4, 2e-5


def cut_axis(shape: Triple) -> int:
    """Return the axis along which a network's feature maps are cut: z, or y for 2-D and thin volumes."""
    return 0 if shape[0] >= 8 or shape[0] >= shape[1] else 1


def ranges(extent: int, seconds: float, least: int = 1) -> list[tuple[int, int]]:
    """Return ranges low..high that cover 0..extent evenly, each of about TARGET_SECONDS and `least` or more.

    There are at least FEWEST, as long as each takes LEAST_SECONDS.
    """
    wanted = max(round(seconds / TARGET_SECONDS), min(FEWEST, int(seconds / LEAST_SECONDS)))
    wanted = max(1, min(extent // least, wanted))
    bounds = [extent * cut // wanted for cut in range(wanted + 1)]
    return list(pairwise(bounds))
