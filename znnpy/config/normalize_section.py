"""The `data.normalize` key of a config: how values of images become those that networks take."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from znnpy.fields import Bool, Float, Positive, Strict, shorthand, wrong

_PER = "Statistics of each volume, or of each of its slices (planes z)."
_NONZERO = "true: statistics of voxels that are not 0, and voxels of 0 stay 0 (background that was masked)."
Per = Literal["volume", "slice"]


class VolumeNormalize(Strict):
    """Normalise by the type of the values alone, or not at all."""

    kind: Literal["unit", "none"] = Field(description="Normalisation.")


class DeviationNormalize(Strict):
    """To mean 0 and deviation 1, each channel by its own values."""

    kind: Literal["mean_std"] = Field(description="Normalisation.")
    per: Per = Field(default="volume", description=_PER)
    nonzero: Bool = Field(default=False, description=_NONZERO)


class RangeNormalize(Strict):
    """From 0 to 1 by the least and the largest value, each channel by its own values."""

    kind: Literal["range"] = Field(description="Normalisation.")
    per: Per = Field(default="volume", description=_PER)
    nonzero: Bool = Field(default=False, description=_NONZERO)


Percentage = Annotated[Float, Field(ge=0, le=100)]


class PercentilesNormalize(Strict):
    """From 0 to 1 by two percentiles, each channel by its own values."""

    kind: Literal["percentiles"] = Field(description="Normalisation.")
    low: Percentage = Field(default=1.0, description="Percentile that becomes 0.")
    high: Percentage = Field(default=99.0, description="Percentile that becomes 1.")
    clip: Bool = Field(
        default=False, description="true: values outside become 0 and 1; false: they go beyond."
    )
    per: Per = Field(default="volume", description=_PER)
    nonzero: Bool = Field(default=False, description=_NONZERO)

    @model_validator(mode="after")
    def _ordered(self) -> PercentilesNormalize:
        if self.low >= self.high:
            raise wrong(f"must be below high, which is {self.high:g}; found {self.low:g}", "low")
        return self


def _each_channel(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


_LIST = {"type": "array", "items": {"type": "number"}, "minItems": 1}
_SCHEMA = WithJsonSchema({"anyOf": [{"type": "number"}, _LIST]})
Numbers = Annotated[tuple[Float, ...], BeforeValidator(_each_channel), Field(min_length=1), _SCHEMA]
"""One number for each channel, or one for all."""
Positives = Annotated[
    tuple[Positive, ...], BeforeValidator(_each_channel), Field(min_length=1), _SCHEMA
]


class FixedNormalize(Strict):
    """Normalise by numbers that are the same for all volumes: (value - mean) / deviation."""

    kind: Literal["fixed"] = Field(description="Normalisation.")
    mean: Numbers = Field(description="Value to subtract, one for each channel or one for all.")
    deviation: Positives = Field(
        default=(1.0,),
        description="Value to divide by after subtracting the mean, one for each channel or one for all.",
    )


class ClipNormalize(Strict):
    """Cut to a window that is the same for all volumes, then (value - mean) / deviation: CT."""

    kind: Literal["clip"] = Field(description="Normalisation.")
    low: Numbers = Field(description="Least value, one for each channel or one for all.")
    high: Numbers = Field(description="Largest value, one for each channel or one for all.")
    mean: Numbers = Field(
        default=(0.0,), description="Value to subtract, one for each channel or one for all."
    )
    deviation: Positives = Field(
        default=(1.0,),
        description="Value to divide by after subtracting the mean, one for each channel or one for all.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> ClipNormalize:
        many = max(len(self.low), len(self.high))
        if min(len(self.low), len(self.high)) not in (1, many):
            raise wrong(f"has {len(self.low)} numbers, and high {len(self.high)}", "low")
        for low, high in zip(_spread(self.low, many), _spread(self.high, many), strict=True):
            if low >= high:
                raise wrong(f"must be below high, which is {high:g}; found {low:g}", "low")
        return self


def _spread(numbers: tuple[float, ...], many: int) -> tuple[float, ...]:
    return numbers if len(numbers) == many else numbers * many


class CtNormalize(Strict):
    """Clip with numbers from labelled voxels (not 0) of `data.train`: what a run begins with becomes its `clip`.

    As nnU-Net: the window from percentile 0.5 to 99.5, then mean and deviation, of these voxels of all volumes.
    """

    kind: Literal["ct"] = Field(description="Normalisation.")


GivenNormalize = FixedNormalize | ClipNormalize
Normalize = Annotated[
    Annotated[
        VolumeNormalize
        | DeviationNormalize
        | RangeNormalize
        | PercentilesNormalize
        | FixedNormalize
        | ClipNormalize
        | CtNormalize,
        Field(discriminator="kind"),
    ],
    shorthand("kind", str),
]
