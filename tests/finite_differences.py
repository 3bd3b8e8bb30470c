"""The loss of the reference by itself, for finite differences: a forward pass, a third of what gradients take."""

from __future__ import annotations

from collections.abc import Mapping

from numpy.typing import ArrayLike

from znnpy.geometry.shape_inference import Geometry
from znnpy.layers.types import Array
from znnpy.network import logits_network, objectives
from znnpy.network.types import Network
from znnpy.reference import forward


def loss_by_reference(
    network: Network,
    geometry: Geometry,
    parameters: Mapping[str, ArrayLike],
    inputs: Mapping[str, ArrayLike],
    targets: Mapping[str, Array],
    weights: Mapping[str, Array] | None = None,
    loss: str = "square",
    masks: Mapping[str, ArrayLike] | None = None,
) -> float:
    """Return the first result of `reference.gradients` for the same arguments."""
    losses, network = objectives(network, loss), logits_network(network, loss)
    values = forward(network, geometry, parameters, inputs, masks, training=True)
    return sum(
        losses[name].value(values[name], targets[name], (weights or {}).get(name))
        for name in losses
    )
