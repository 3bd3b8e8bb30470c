"""What normalises the values of an image, by channel or by channel and slice; float32."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.normalizing import KINDS, normalized_voxels

from znnpy.data.values.outliers import usable
from znnpy.data.volume import Array

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Planes = NDArray[np.int64]
Limits = tuple[Float64, Float64]
KIND = {np.dtype(name): number for number, name in enumerate(KINDS)}


@dataclass(frozen=True)
class Normalisation:
    """`(value - shift) * scale` for each channel; shift and scale are float64 of shape (C,), or (C, Z) by slice.

    With `replace`, what float32 cannot hold, such as NaN, becomes 0: the mean under `mean_std`. `limits`, of the same
    shape: the least and the largest value, to which others are cut. With `nonzero`, voxels of 0 stay 0.
    """

    shift: Float64
    scale: Float64
    replace: bool = False
    limits: Limits | None = None
    nonzero: bool = False

    @property
    def by_slice(self) -> bool:
        """Whether `apply` has to know which slices it is given."""
        return self.shift.ndim == 2

    def apply(
        self, array: Array, out: Float32 | None = None, planes: Planes | None = None
    ) -> Float32:
        """Return the normalised values, float32 of the same shape, (C, z, y, x), in `out` or a new array.

        `planes`: the slices of the volume that lie along z, needed where `by_slice`.
        """
        if out is None:
            out = np.empty(array.shape, np.float32)
        if self._plain and array.dtype in KIND and out.strides[-1] == out.itemsize:
            self._run(array, out)
            return out
        # What float32 cannot hold exactly is taken in float64, as differences may be small beside the values.
        exact = np.float32 if np.can_cast(array.dtype, np.float32) else np.float64
        shift = self._along(self.shift, planes)
        scale = self._along(self.scale, planes)
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(array, shift.astype(exact), out=out, dtype=exact, casting="unsafe")
            out *= scale.astype(np.float32)
        if self.limits is not None:
            ends = (((self._along(it, planes) - shift) * scale) for it in self.limits)
            least, most = (end.astype(np.float32) for end in ends)
            np.clip(out, least, most, out=out)
        if self.nonzero:
            out[array == 0] = 0
        if self.replace and array.dtype.kind == "f":
            out[~usable(array)] = 0
        return out

    @property
    def _plain(self) -> bool:
        """Whether a voxel's value depends on its own and its channel alone, and none is replaced."""
        return not (self.by_slice or self.nonzero or self.replace) and self.limits is None

    def _run(self, array: Array, out: Float32) -> None:
        """Normalise in one pass, whatever way the array lies in memory: the bits are the same."""
        for channel, found, shift, scale in zip(array, out, self.shift, self.scale, strict=True):
            normalized_voxels(
                found.ctypes.data, *found.strides[:2], channel.ctypes.data, *channel.strides, *channel.shape,
                KIND[array.dtype], array.itemsize, float(shift), float(scale),
            )  # fmt: skip

    def _along(self, numbers: Float64, planes: Planes | None) -> Float64:
        if not self.by_slice:
            return numbers[:, None, None, None]
        assert planes is not None
        return numbers[:, planes, None, None]

    def record(self) -> dict[str, list[object]]:
        """Return all numbers as JSON has them."""
        limits = [it.tolist() for it in self.limits or ()]
        return {"shift": self.shift.tolist(), "scale": self.scale.tolist()} | (
            {"limits": limits} if limits else {}
        )
