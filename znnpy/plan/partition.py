"""Cuts work into tasks: ranges of planes along one axis, by shapes and estimated cost alone.

The cuts never depend on the number of threads: where they split a sum they change its last bits.
"""

from __future__ import annotations

from itertools import pairwise

from znnpy.network.types import Triple

# Of a task: some hundred times what a steal takes, so that scheduling costs little.
# Larger: workers wait for the last task of a pass. Smaller: dispatch and edges of the graph take a
# larger share.
TARGET_SECONDS = 1e-4
# Short passes are cut as well, so that workers need not wait for a single one at their end.
# LEAST_SECONDS bounds FEWEST: below it the dispatch of a task is no longer small beside its work.
FEWEST, LEAST_SECONDS = 4, 2e-5


def cut_axis(shape: Triple) -> int:
    """Return the axis along which a network's feature maps are cut: z, or y for 2-D and thin volumes."""
    # Eight planes are enough for ranges of planes; thin volumes have more rows than planes. Rows
    # along x stay whole: kernels run along them.
    return 0 if shape[0] >= 8 or shape[0] >= shape[1] else 1


def ranges(extent: int, seconds: float, least: int = 1) -> list[tuple[int, int]]:
    """Return ranges low..high that cover 0..extent evenly, each of about TARGET_SECONDS and `least` or more.

    There are at least FEWEST, as long as each takes LEAST_SECONDS.
    """
    wanted = max(round(seconds / TARGET_SECONDS), min(FEWEST, int(seconds / LEAST_SECONDS)))
    # `least` wins over the number of tasks that are wanted, but there is always one range.
    wanted = max(1, min(extent // least, wanted))
    # Integer arithmetic: the cuts, and so the bits of sums over them, are the same on every machine
    # for the same estimate.
    bounds = [extent * cut // wanted for cut in range(wanted + 1)]
    return list(pairwise(bounds))
