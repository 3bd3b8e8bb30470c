"""What a network that `znnpy export` wrote learned, as its file says it, and as a config does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from znnpy.errors import ModelFileError
from znnpy.network.types import Network


@dataclass(frozen=True)
class Learned:
    """Targets of outputs, in their order, and the loss, unchecked, of an exported network; nothing if not said."""

    targets: Sequence[Any] = ()
    loss: Mapping[str, Any] | None = None

    def data(self) -> dict[str, Any]:
        """Return keys of `data`."""
        return {"target": self.targets[0]} if self.targets else {}

    def training(self, network: Network) -> dict[str, Any]:
        """Return keys of `training`; ModelFileError unless the network has as many outputs."""
        keys: dict[str, Any] = {} if self.loss is None else {"loss": dict(self.loss)}
        if not self.targets:
            return keys
        names = [node.name for node in network.outputs]
        if len(self.targets) != len(names):
            raise ModelFileError(
                f"targets are {len(self.targets)}, and the network has {len(names)} outputs"
            )
        if any(target != self.targets[0] for target in self.targets):
            named = zip(names, self.targets, strict=True)
            keys["outputs"] = {name: {"target": target} for name, target in named}
        return keys
