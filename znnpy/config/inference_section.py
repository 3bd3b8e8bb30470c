"""The `inference` section: how volumes are predicted where values depend on the patch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from znnpy.fields import Share3, Size3, Strict

BlendName = Literal["gaussian", "linear", "constant"]


class InferenceSection(Strict):
    """Windows over whole volumes, for networks with padding or with statistics of images; others need none."""

    window: Size3 | None = Field(
        default=None,
        description="Output voxels of one window, z y x (default: training.output_shape).",
    )
    overlap: Share3 = Field(
        default=(0.5, 0.5, 0.5),
        description="Share of a window that the next one covers too, z y x, in [0, 1).",
    )
    blend: BlendName = Field(
        default="gaussian",
        description="What a window's voxels weigh where windows overlap: gaussian (sigma an eighth of the "
        "window), linear (a ramp as long as the overlap) or constant.",
    )
