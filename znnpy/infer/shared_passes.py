"""How many windows of a scan share a forward pass: filters are read, or transformed, once for all of them.

Windows of slices are small beside the filters of wide networks: of nnU-Net's flat ones a window has 0.1 MiB of input,
and 70 MiB of filters. Windows of volumes fill memory one by one.
"""

from __future__ import annotations

from math import log2, prod

from znnpy.geometry import Geometry
from znnpy.infer.forward_costs import forward_seconds, largest_image, lean_plan
from znnpy.network.parameters import parameter_shapes
from znnpy.network.types import Network
from znnpy.plan import Choice, Plan
from znnpy.plan.cost import STREAM_RATE

ROOM = 16 << 20
"""Bytes of the largest node of all windows of a pass: with more of them the feature maps, several times as large,
would take as much memory as the filters."""
MOST = 8  # windows
WORTH = 0.97  # of the time of passes over half as many


def shared_pass(
    network: Network, geometry: Geometry, conv: Choice, mirrored: int = 1
) -> tuple[int, Plan]:
    """Return how many windows share a pass, by memory and estimate, and the plan of such a pass (`lean_plan`).

    `mirrored`: images of each window (a power of two), which fill passes, or of which passes are filled. Depends on
    network and sizes alone, as what a layer's values round to may depend on it; not on which windows they are, as norms
    over a batch take running statistics in predictions.
    """
    filters = _filter_bytes(network) / STREAM_RATE

    def estimated(batch: int) -> tuple[float, Plan]:
        plan = lean_plan(network, geometry, conv, batch)
        return forward_seconds(network, geometry, plan, batch) + filters, plan

    batch, (seconds, plan) = 1, estimated(1)
    most = _fitting(min(MOST, ROOM // largest_image(network, geometry)), mirrored)
    # Mostly as many as fit are the quickest: first, as each estimate takes a hundredth of a second.
    for more in dict.fromkeys((most, 2, 4)):
        if not batch < more <= most:
            continue
        spent, own = estimated(more)
        if spent * batch <= WORTH ** log2(more / batch) * seconds * more:
            batch, seconds, plan = more, spent, own
        elif more < most:
            break
    return batch, plan


def _fitting(most: int, mirrored: int) -> int:
    """Return how many images a pass has at most, of which none is left over: whole windows, or an equal part of one."""
    return most - most % mirrored if most >= mirrored else 1 << max(0, most.bit_length() - 1)


def _filter_bytes(network: Network) -> int:
    """Return the bytes of all parameters, which every pass reads."""
    return sum(4 * prod(shape) for shape in parameter_shapes(network).values())
