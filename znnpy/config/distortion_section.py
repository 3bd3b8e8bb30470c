"""Distortions of training patches, as electron microscopes and cutting make them: `augment.contrast` and others."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from znnpy.fields import Float, Int, Size3, Strict, shown, wrong

By = Literal["volume", "section", "mixed"]


def _rising(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        raise wrong(f"must be the least and the largest; found {shown(list(value))}")
    return value


Numbers = Annotated[tuple[Float, Float], AfterValidator(_rising)]
_Small = Annotated[Float, Field(ge=0, le=1e3)]
_Large = Annotated[Float, Field(gt=0, le=1e3)]
Sizes = Annotated[tuple[_Small, _Small], AfterValidator(_rising)]
Factors = Annotated[tuple[_Large, _Large], AfterValidator(_rising)]
Coarser = Annotated[
    tuple[Annotated[Float, Field(ge=1, le=64)], Annotated[Float, Field(ge=1, le=64)]],
    AfterValidator(_rising),
]
Counted = Annotated[Int, Field(ge=1, le=1024)]


class Distortion(Strict):
    """What is done to some patches."""

    probability: Annotated[Float, Field(gt=0, le=1)] = Field(
        default=0.3, description="Share of the patches that are changed."
    )


class Whole(Distortion):
    """What is done to whole patches, or to each section by itself."""

    by: By = Field(
        default="mixed",
        description="volume: the whole patch alike; section: each section (z) with numbers of its own; mixed: either.",
    )


class ContrastSection(Whole):
    """Contrast: distances from the mean are multiplied."""

    factor: Factors = Field(default=(0.75, 1.25), description="Least and largest factor.")


class BrightnessSection(Whole):
    """Brightness: a number is added."""

    shift: Numbers = Field(
        default=(-0.3, 0.3), description="Least and largest number, in normalised values."
    )


class GammaSection(Whole):
    """Gamma: values, scaled to 0 to 1 between the least and the largest, are raised to a power."""

    power: Factors = Field(default=(0.7, 1.5), description="Least and largest power.")


class NoiseSection(Distortion):
    """Gaussian noise in each voxel."""

    deviation: Sizes = Field(
        default=(0.0, 0.2), description="Least and largest deviation, in normalised values."
    )


class BlurSection(Whole):
    """Gaussian blur; along axes of larger voxels less, within sections alone if by section."""

    sigma: Sizes = Field(
        default=(0.5, 1.5), description="Least and largest sigma, in the smallest voxels."
    )


class LowResolutionSection(Whole):
    """Lower resolution: voxels are left out and interpolated again; axes of larger voxels keep more."""

    factor: Coarser = Field(
        default=(1.5, 3.0), description="Least and largest factor that voxels grow by."
    )


class MissingSection(Distortion):
    """Missing sections: all values are 0, the mean."""

    sections: Counted = Field(
        default=1, description="Neighbouring sections that are missing, at most."
    )


class DarkSection(Distortion):
    """A section that is dark, or of low contrast."""

    factor: Factors = Field(default=(0.2, 0.7), description="Least and largest factor of contrast.")
    shift: Numbers = Field(default=(-2.0, -0.5), description="Least and largest number added.")


class DropoutSection(Distortion):
    """Coarse dropout: boxes in which all values are 0."""

    boxes: Counted = Field(default=4, description="Boxes, at most.")
    size: Size3 = Field(default=(2, 8, 8), description="Their largest size, z y x in voxels.")


class ShiftSection(Distortion):
    """Sections that lie elsewhere, images and labels alike."""

    shift: Counted = Field(default=8, description="Voxels along y and x, at most.")


class RotateSection(Distortion):
    """Rotation by any angle, interpolated; labels by the nearest voxel."""

    angle: Annotated[
        tuple[
            Annotated[Float, Field(ge=-180, le=180)],
            Annotated[Float, Field(ge=-180, le=180)],
        ],
        AfterValidator(_rising),
    ] = Field(default=(-180.0, 180.0), description="Least and largest angle, in degrees.")
    axis: Literal["z", "any"] = Field(
        default="z", description="About which axis: z, within sections; or any, drawn for each."
    )


_Scale = Annotated[Float, Field(ge=0.25, le=4)]
_Shear = Annotated[Float, Field(ge=-0.5, le=0.5)]


class AffineSection(Distortion):
    """Scaling and shear, of each axis by itself, interpolated; labels by the nearest voxel."""

    scale: Annotated[tuple[_Scale, _Scale], AfterValidator(_rising)] = Field(
        default=(0.8, 1.25),
        description="Least and largest share of itself that is read along an axis: below 1, things grow.",
    )
    shear: Annotated[tuple[_Shear, _Shear], AfterValidator(_rising)] = Field(
        default=(-0.1, 0.1), description="Least and largest shear, of an axis by another."
    )
    axes: Literal["yx", "zyx"] = Field(default="yx", description="Axes that are changed.")


class ElasticSection(Distortion):
    """Elastic deformation: random displacements between which splines run; labels by the nearest voxel."""

    spacing: Annotated[Float, Field(ge=4, le=1024)] = Field(
        default=32.0, description="Distance of the displacements, in the smallest voxels."
    )
    deviation: Annotated[
        tuple[Annotated[Float, Field(ge=0, le=64)], Annotated[Float, Field(ge=0, le=64)]],
        AfterValidator(_rising),
    ] = Field(
        default=(0.0, 4.0),
        description="Least and largest deviation of displacements, in the smallest voxels.",
    )
    axes: Literal["yx", "zyx"] = Field(default="yx", description="Axes along which things move.")
