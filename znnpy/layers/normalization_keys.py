"""The config key `norm`: how a node's sum is normalised before its activation function."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_serializer, model_validator

from znnpy.fields import Bool, Channels, Positive, Probability, Strict, shorthand, wrong
from znnpy.layers.types import Norm, NormKind

_OWN = {"groups": "group", "momentum": "batch"}  # keys that one kind alone has


class NormSection(Strict):
    """Normalisation of a sum: minus its mean, by its deviation; in short its kind (`batch`)."""

    kind: NormKind = Field(
        description="Whose statistics: batch (each channel over the batch; prediction uses running ones), "
        "instance (each channel of each sample), group (neighbouring channels), layer (all channels)."
    )
    groups: Channels = Field(
        default=8, description="Groups of channels, of kind group; they divide."
    )
    epsilon: Positive = Field(default=1e-5, description="What is added to the variance.")
    momentum: Probability = Field(
        default=0.1, description="What running statistics take of each update, of kind batch."
    )
    affine: Bool = Field(default=True, description="Learn a scale and a shift for each channel.")

    @model_validator(mode="after")
    def _fits(self) -> NormSection:
        for key, kind in _OWN.items():
            if kind != self.kind and key in self.model_fields_set:
                raise wrong(f"only {kind} has this; this is {self.kind}", key)
        return self

    @model_serializer
    def _used(self) -> dict[str, Any]:
        return _data(self.kind, self)


NormField = Annotated[
    Annotated[NormSection, shorthand("kind", str)] | None,
    Field(description="Normalise the sum, bias included, before the function."),
]
BiasKey = Annotated[
    Bool | None,
    Field(description="Add one learned bias per channel (default: true without a norm)."),
]


def norm_of(section: NormSection | None) -> Norm | None:
    """Return the normalisation that a section describes; None without a section."""
    if section is None:
        return None
    groups = section.groups if section.kind == "group" else 1
    return Norm(section.kind, groups, section.epsilon, section.momentum, section.affine)


def norm_data(norm: Norm) -> dict[str, Any]:
    """Return the keys of a section that describes this normalisation."""
    return _data(norm.kind, norm)


def biased(bias: bool | None, norm: NormSection | None) -> bool:
    """Return whether a node has a bias: as written, else if no norm follows, whose shift does the same."""
    return norm is None if bias is None else bias


def _data(kind: NormKind, numbers: Norm | NormSection) -> dict[str, Any]:
    keys = ("groups", "epsilon", "momentum", "affine")
    return {"kind": kind} | {k: getattr(numbers, k) for k in keys if _OWN.get(k, kind) == kind}
