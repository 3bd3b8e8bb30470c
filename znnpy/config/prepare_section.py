"""The `data.prepare` key of a config: from scans to what a network sees, and from its output back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from znnpy.fields import Bool, Float, Int, NonNegative, Positive, Strict, shorthand, shown, wrong

_WORLD = {"L": "R", "P": "A", "I": "S"}


class DeviationScheme(Strict):
    """Minus the mean, by the deviation: of all voxels of the scan, or of those inside it."""

    kind: Literal["deviation"] = Field(description="Normalisation of a channel.")
    inside: Bool = Field(
        default=False,
        description="true: of voxels inside alone, where any channel is not 0, holes filled; others stay as they are.",
    )


class ClipScheme(Strict):
    """Clipped to a range, then minus a mean, by a deviation, all of them given: CT."""

    kind: Literal["clip"] = Field(description="Normalisation of a channel.")
    low: Float = Field(description="Least value.")
    high: Float = Field(description="Largest value.")
    mean: Float = Field(description="Value to subtract.")
    deviation: NonNegative = Field(description="Value to divide by, 1e-8 at least.")

    @model_validator(mode="after")
    def _ordered(self) -> ClipScheme:
        if self.low > self.high:
            raise wrong(
                f"must not be above high, which is {self.high:g}; found {self.low:g}", "low"
            )
        return self


class PlainScheme(Strict):
    """From 0 to 1 by its least and largest value (range), or by 255 (bytes); none: as it is."""

    kind: Literal["range", "bytes", "none"] = Field(description="Normalisation of a channel.")


Scheme = Annotated[
    Annotated[DeviationScheme | ClipScheme | PlainScheme, Field(discriminator="kind")],
    shorthand("kind", str),
]


GridName = Literal["extent", "centres"]


class ResampleSection(Strict):
    """Interpolation between voxels of two sizes: as in nnU-Net's resample_data_or_seg_to_shape, or MONAI's Spacing."""

    order: Annotated[Int, Field(ge=0, le=3)] = Field(description="Order of the splines.")
    across: Annotated[Int, Field(ge=0, le=1)] = Field(
        default=0, description="Order across planes, where planes are resampled one by one."
    )
    planes: Literal["auto", True, False] = Field(
        default="auto",
        description="Resample plane by plane: auto (if voxels are more than three times as long along one axis).",
    )
    grid: GridName = Field(
        default="extent",
        description="What both voxel sizes have in common: the edges of the scan (extent, as nnU-Net), or the centre "
        "of its first voxel (centres, as MONAI's Spacing; of oblique scans the middle; order 1).",
    )

    @model_validator(mode="after")
    def _linear(self) -> ResampleSection:
        if self.grid == "centres" and self.order != 1:
            raise wrong(f"must be 1 where grid is centres; found {self.order}", "order")
        return self


class PrepareSection(Strict):
    """Preparation of scans: turn axes, cut off what is 0, normalise, resample to one voxel size; in this order."""

    transpose: tuple[Int, Int, Int] = Field(
        default=(0, 1, 2), description="Axes of the scan, z y x as 0 1 2, in the network's order."
    )
    orient: str | None = Field(
        default=None,
        description="Directions in which the axes of the network run, for transpose: three letters of R or L, A or P, "
        "S or I, such as RAS; scans are turned, and reversed, to them (default: as they lie).",
    )
    crop: Bool = Field(
        default=True, description="Cut off planes at the faces in which all channels are 0."
    )
    normalize: Annotated[tuple[Scheme, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="Normalisation of each channel: deviation, clip, range, bytes or none (default: none here; "
        "data.normalize is for what was prepared).",
    )
    spacing: tuple[Positive | None, Positive | None, Positive | None] = Field(
        default=(None, None, None),
        description="Voxel size of the network's input in nanometres, axes turned; null: that of the scan.",
    )
    resample: ResampleSection = Field(
        default=ResampleSection(order=3), description="Interpolation of the scan."
    )
    restore: ResampleSection = Field(
        default=ResampleSection(order=1), description="Interpolation of the network's output."
    )

    @field_validator("restore")
    @classmethod
    def _local(cls, section: ResampleSection) -> ResampleSection:
        if section.order > 1:
            raise wrong("must be 0 or 1, so that planes can be written as they come", "order")
        return section

    @model_validator(mode="after")
    def _turned_once(self) -> PrepareSection:
        if self.orient is None:
            return self
        if sorted(_WORLD.get(letter, letter) for letter in self.orient) != ["A", "R", "S"]:
            raise wrong(
                f"must hold one letter each of R or L, A or P, S or I; found {shown(self.orient)}",
                "orient",
            )
        if self.transpose != (0, 1, 2):
            raise wrong("must not be said where orient is", "transpose")
        return self

    @field_validator("transpose")
    @classmethod
    def _each_once(cls, axes: tuple[int, int, int]) -> tuple[int, int, int]:
        if sorted(axes) != [0, 1, 2]:
            raise wrong(f"must hold 0, 1 and 2, each once; found {list(axes)}")
        return axes
