"""What a loss asks of a network's outputs."""

from __future__ import annotations

from znnpy.errors import NetworkError
from znnpy.network.types import Network


def refuse_one_class(network: Network, loss: str) -> None:
    """NetworkError for softmax of a single image, which is 1 whatever the network learns."""
    for node in network.outputs:
        if loss == "softmax" and node.images < 2:
            raise NetworkError(
                f"softmax needs an image for each class, at least 2, but output {node.name!r} "
                f"has {node.images}; binomial_cross_entropy is for a single image"
            )
