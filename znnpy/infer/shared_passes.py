"""How many windows of a scan share a forward pass: filters are read, or transformed, once for all of them.

Windows of slices are small beside the filters of wide networks: of nnU-Net's flat ones a window has 0.1 MiB of input,
and 70 MiB of filters. Windows of volumes fill memory one by one.
"""

from __future__ import annotations

from math import prod

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
WORTH = 0.97  # of the time of a pass over half as many


def shared_pass(network: Network, geometry: Geometry, conv: Choice) -> tuple[int, Plan]:
    """Return how many windows share a pass, by memory and estimate, and the plan of such a pass (`lean_plan`).

    Depends on network and sizes alone, as what a layer's values round to may depend on it; not on which windows they
    are, as norms over a batch take running statistics in predictions.
    """
    largest, filters = largest_image(network, geometry), _filter_bytes(network)
    batch, plan = 1, lean_plan(network, geometry, conv)
    seconds = forward_seconds(network, geometry, plan) + filters / STREAM_RATE
    while 2 * batch <= MOST and 2 * batch * largest <= ROOM:
        more = lean_plan(network, geometry, conv, 2 * batch)
        spent = forward_seconds(network, geometry, more, 2 * batch) + filters / STREAM_RATE
        if spent > WORTH * 2 * seconds:
            break
        batch, plan, seconds = 2 * batch, more, spent
    return batch, plan


def _filter_bytes(network: Network) -> int:
    """Return the bytes of all parameters, which every pass reads."""
    return sum(4 * prod(shape) for shape in parameter_shapes(network).values())
