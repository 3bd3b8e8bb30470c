"""What a network that `znnpy export` wrote learned, as its file says it, and as a config does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from znnpy.errors import ModelFileError
from znnpy.network.types import Network


@dataclass(frozen=True)
class Learned:
    """Targets and losses of an exported network's outputs, and the losses' weights, unchecked; empty if not said."""

    targets: Sequence[Any] = ()
    losses: Sequence[Any] = ()
    weights: Sequence[Any] = ()

    def data(self) -> dict[str, Any]:
        """Return keys of `data`."""
        return {"target": self.targets[0]} if self.targets else {}

    def training(self, network: Network) -> dict[str, Any]:
        """Return keys of `training`; ModelFileError unless the network has as many outputs."""
        keys: dict[str, Any] = {"loss": self.losses[0]} if self.losses else {}
        outputs: dict[str, dict[str, Any]] = {node.name: {} for node in network.outputs}
        for key, names, said in (
            ("target", "targets", self.targets),
            ("loss", "losses", self.losses),
            ("weight", "loss_weights", self.weights),
        ):
            if said and len(said) != len(outputs):
                raise ModelFileError(
                    f"{names} are {len(said)}, and the network has {len(outputs)} outputs"
                )
            if any(it != (1.0 if key == "weight" else said[0]) for it in said):
                for own, it in zip(outputs.values(), said, strict=True):
                    own[key] = it
        return keys | ({"outputs": outputs} if any(outputs.values()) else {})
