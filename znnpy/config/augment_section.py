"""The `augment` section: how training patches are turned and distorted."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from znnpy.config.distortion_section import (
    AffineSection,
    BlurSection,
    BrightnessSection,
    ContrastSection,
    DarkSection,
    DropoutSection,
    ElasticSection,
    GammaSection,
    LowResolutionSection,
    MissingSection,
    NoiseSection,
    RotateSection,
    ShiftSection,
)
from znnpy.fields import Bool, Strict

Axis = Literal["z", "y", "x"]
SWAPS = ("auto", "none", "zyx", "yx", "zy", "zx")
"""Allowed values of `augment.swaps`."""


def _swaps(value: Any) -> Any:
    """Sort the letters of a swap: xy means yx."""
    if isinstance(value, str) and value and set(value) <= set("zyx"):
        return "".join(sorted(value, reverse=True))
    return value


DISTORTIONS = (
    "contrast", "brightness", "gamma", "noise", "blur", "low_resolution", "missing", "dark", "dropout", "slip", "step",
    "rotate", "affine", "elastic",
)  # fmt: skip
"""Keys of `augment` that distort patches."""
MOVES = ("slip", "step", "rotate", "affine", "elastic")
"""Those by which patches read elsewhere."""


class AugmentSection(Strict):
    """Data augmentation of training patches: flips, axis swaps, and distortions, which are made only where named."""

    enabled: Bool = Field(default=True, description="Whether training patches are augmented.")
    flips: Annotated[
        tuple[Axis, ...], BeforeValidator(lambda v: tuple(v) if isinstance(v, str) else v)
    ] = Field(
        default=("z", "y", "x"), description="Axes along which patches are flipped, e.g. [y, x]."
    )
    swaps: Annotated[Literal["auto", "none", "zyx", "yx", "zy", "zx"], BeforeValidator(_swaps)] = (
        Field(
            default="auto",
            description="Axes that are exchanged at random: zyx, yx, zy, zx, none, or auto (the axes of equal "
            "resolution).",
        )
    )
    contrast: ContrastSection | None = Field(default=None, description="Change the contrast.")
    brightness: BrightnessSection | None = Field(default=None, description="Change the brightness.")
    gamma: GammaSection | None = Field(default=None, description="Bend the scale of values.")
    noise: NoiseSection | None = Field(default=None, description="Add noise.")
    blur: BlurSection | None = Field(default=None, description="Blur the image.")
    low_resolution: LowResolutionSection | None = Field(
        default=None, description="Simulate larger voxels."
    )
    missing: MissingSection | None = Field(default=None, description="Leave out sections.")
    dark: DarkSection | None = Field(default=None, description="Darken a section.")
    dropout: DropoutSection | None = Field(default=None, description="Leave out boxes.")
    slip: ShiftSection | None = Field(
        default=None, description="Move one section, with its labels."
    )
    step: ShiftSection | None = Field(
        default=None, description="Move all sections from one on, with their labels."
    )
    rotate: RotateSection | None = Field(
        default=None, description="Rotate by any angle, with the labels."
    )
    affine: AffineSection | None = Field(
        default=None, description="Scale and shear, with the labels."
    )
    elastic: ElasticSection | None = Field(
        default=None, description="Deform elastically, with the labels."
    )

    @property
    def distorts(self) -> bool:
        """Whether any distortion is named."""
        return any(getattr(self, name) is not None for name in DISTORTIONS)
