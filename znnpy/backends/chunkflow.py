"""The network of a run for chunkflow: the model file of `inference --framework universal`.

chunkflow loads the file by its path, so that it imports nothing relative to its room.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from znnpy.backends.patch_predictor import PatchPredictor
from znnpy.errors import ConfigError, ShapeError

__all__ = ["PatchInferencer"]


class PatchInferencer:
    """What chunkflow calls with each patch, and blends what comes back.

    `convnet_weight_path`: a run, or another program's model as `znnpy import` takes it. `output_patch_mask` (z, y, x):
    weights of the voxels of a patch, which values are multiplied by. chunkflow hands integers as 0 to 1
    (`data.normalize: unit`), so ConfigError for runs that were trained on other values, unless `prepared` is set.
    """

    prepared: ClassVar[bool] = False
    """True in a class of one's own: chunks are normalised before, as the run was trained."""

    def __init__(self, convnet_weight_path: str, output_patch_mask: NDArray[Any]) -> None:
        self._predictor = PatchPredictor(convnet_weight_path, probabilities=True)
        if not self.prepared and (found := self._predictor.normalised):
            self._predictor.close()
            raise ConfigError(
                f"{convnet_weight_path} was trained with {found}, and chunkflow hands values from 0 to 1 "
                "(data.normalize: unit); normalise chunks before, and say so by prepared = True in a class of yours"
            )
        self._mask = np.asarray(output_patch_mask, np.float32)

    @property
    def compute_device(self) -> str:
        """What chunkflow notes in its log."""
        return "znnpy"

    def __call__(self, input_patch: NDArray[Any]) -> NDArray[Any]:
        """Return probabilities (n, k, z, y, x) of patches (n, c, z, y, x), cut to the mask and times it.

        Raises ShapeError where the network's output is smaller than the mask, or cannot lie in its middle.
        """
        found = self._predictor(input_patch)
        if isinstance(found, dict):
            raise ConfigError(f"chunkflow takes one output, and the network has {', '.join(found)}")
        more = [n - wanted for n, wanted in zip(found.shape[2:], self._mask.shape, strict=True)]
        if min(more) < 0 or any(n % 2 for n in more):
            raise ShapeError(
                f"the network makes {found.shape[2:]} voxels (z, y, x) of patches of {input_patch.shape[2:]}: "
                f"--output-patch-size must be that, or less by an even number; found {self._mask.shape}"
            )
        z, y, x = (
            slice(n // 2, n // 2 + size) for n, size in zip(more, self._mask.shape, strict=True)
        )
        return np.asarray(found[:, :, z, y, x] * self._mask)
