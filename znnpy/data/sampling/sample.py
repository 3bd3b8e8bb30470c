"""The parts of a training sample: shapes of patches by node, the targets of outputs, and the arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from znnpy.data.sampling.targets import Target
from znnpy.data.volume import Triple

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class InputPatch:
    """Shape z, y, x of an input node's patch; `offset` from the first input's, or centred."""

    shape: Triple
    offset: Triple | None = None


@dataclass(frozen=True)
class OutputPatch:
    """Shape z, y, x of an output node's patch, and its target.

    Output voxel i lies at `offset + i * stride` in the first input's patch; centred without offset.
    """

    shape: Triple
    target: Target
    offset: Triple | None = None
    stride: Triple = (1, 1, 1)


@dataclass(frozen=True)
class Patch:
    """One sample: float32 (C, z, y, x) by node, or several; owned by whoever asked for it."""

    images: dict[str, Float32]
    targets: dict[str, Float32]
    weights: dict[str, Float32]


def stacked(patches: Sequence[Patch]) -> Patch:
    """Return several samples as one, (number, C, z, y, x) by node."""

    def together(groups: list[dict[str, Float32]]) -> dict[str, Float32]:
        if len(groups) == 1:
            # A copy of what nobody else has would take as long as reading it.
            return {node: values[None] for node, values in groups[0].items()}
        return {node: np.stack([group[node] for group in groups]) for node in groups[0]}

    return Patch(
        together([patch.images for patch in patches]),
        together([patch.targets for patch in patches]),
        together([patch.weights for patch in patches]),
    )
