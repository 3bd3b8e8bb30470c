"""The `data` and `augment` sections: volumes, targets, and how patches are varied."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from znnpy.dataset_path import joined, split, there
from znnpy.errors import VolumeError
from znnpy.fields import (
    Bool,
    Count,
    FilePath,
    Float,
    Int,
    Offsets,
    Positive,
    Spacing3,
    Strict,
    in_folder,
    shorthand,
    shown,
    wrong,
)


class Source(Strict):
    """Where an array lies: a file and, in some formats, a dataset. Written `path` or `path:dataset`."""

    path: FilePath = Field(description="File; relative paths count from the config file's folder.")
    dataset: str | None = Field(
        default=None, description="Dataset inside an HDF5, npz or CIFAR file or a Zarr folder."
    )

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, cls | dict):
            return value
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise wrong(f"must be a path or path:dataset; found {shown(value)}")
        kind = type(value)
        try:
            path, dataset = split(value, lambda name: there(str(in_folder(kind(name), info))))
        except VolumeError as error:
            raise wrong(f"must be a path or path:dataset; {error}") from None
        return {"path": kind(path), "dataset": dataset}  # of typed text, the path is typed

    @model_serializer
    def text(self) -> str:
        """The way it is written in the config."""
        return joined(self.path, self.dataset or "")

    def __str__(self) -> str:
        return self.text()


def _one_or_by_node(value: Any) -> Any:
    return value if isinstance(value, dict) else {"": value}


def _shortest(value: dict[str, Source]) -> str | dict[str, str]:
    texts = {node: source.text() for node, source in value.items()}
    return texts[""] if set(texts) == {""} else texts


_SOURCE_SCHEMA = {"type": "string", "description": "path or path:dataset"}
Sources = Annotated[
    dict[str, Source],
    BeforeValidator(_one_or_by_node),
    PlainSerializer(_shortest),
    WithJsonSchema(
        {"anyOf": [_SOURCE_SCHEMA, {"type": "object", "additionalProperties": _SOURCE_SCHEMA}]}
    ),
]
"""Sources by node name; a bare path has the key "" and stands for the only node."""


class VolumeSection(Strict):
    """One volume: an image, and labels and a mask of the same size."""

    image: Sources = Field(
        description="Raw image, path or path:dataset; with several inputs, by input node."
    )
    labels: Sources | None = Field(
        default=None,
        description="Labels, path or path:dataset; by output node where outputs have others.",
    )
    mask: Sources | None = Field(
        default=None,
        description="Voxels that count (not 0), path or path:dataset; by output node where they differ.",
    )


class BoundaryTarget(Strict):
    """One output image: 1 on boundaries between objects and on background, 0 inside objects."""

    kind: Literal["boundary"] = Field(description="Target.")
    thickness: Count = Field(
        default=1, description="Thickness of a boundary on either side, in voxels."
    )


class AffinityTarget(Strict):
    """One output image per offset: 1 where a voxel and its neighbour share an object."""

    kind: Literal["affinity"] = Field(description="Target.")
    offsets: Offsets = Field(
        default=((-1, 0, 0), (0, -1, 0), (0, 0, -1)),
        description="Neighbours in voxels, each z y x (default: the nearest along z, y and x).",
    )


class LabelsTarget(Strict):
    """The labels as given: class numbers for losses of classes, else values of the output images."""

    kind: Literal["labels"] = Field(description="Target.")
    ignore: Int | None = Field(
        default=None, description="Label of voxels that do not count (default: none)."
    )


class MaskTarget(Strict):
    """One output image per channel of the labels: 1 where they are not 0, else 0."""

    kind: Literal["mask"] = Field(description="Target.")


class ImageTarget(Strict):
    """One output image per channel of the labels: their values times `scale`."""

    kind: Literal["image"] = Field(description="Target.")
    scale: Float = Field(
        default=1.0, description="Factor of the values, such as 0.00392157 for 0..255 as 0..1."
    )

    @field_validator("scale")
    @classmethod
    def _not_zero(cls, scale: float) -> float:
        if scale == 0:
            raise wrong("must not be 0: nothing would be left to learn")
        return scale


Target = Annotated[
    Annotated[
        BoundaryTarget | AffinityTarget | LabelsTarget | MaskTarget | ImageTarget,
        Field(discriminator="kind"),
    ],
    shorthand("kind", str),
]


class VolumeNormalize(Strict):
    """By each volume's own values, or not at all."""

    kind: Literal["mean_std", "unit", "none"] = Field(description="Normalisation.")


def _each_channel(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


_NUMBERS = {"type": "array", "items": {"type": "number"}, "minItems": 1}


class FixedNormalize(Strict):
    """By numbers that are the same for all volumes: (value - mean) / deviation."""

    kind: Literal["fixed"] = Field(description="Normalisation.")
    mean: Annotated[
        tuple[Float, ...],
        BeforeValidator(_each_channel),
        Field(min_length=1),
        WithJsonSchema({"anyOf": [{"type": "number"}, _NUMBERS]}),
    ] = Field(description="What is taken off, a number for each channel or one for all.")
    deviation: Annotated[
        tuple[Positive, ...],
        BeforeValidator(_each_channel),
        Field(min_length=1),
        WithJsonSchema({"anyOf": [{"type": "number"}, _NUMBERS]}),
    ] = Field(default=(1.0,), description="What is divided by then, as `mean`.")


Normalize = Annotated[
    Annotated[VolumeNormalize | FixedNormalize, Field(discriminator="kind")],
    shorthand("kind", str),
]


class ShardsSection(Strict):
    """How the volumes to train on are divided among ranks, each of which has its part in memory."""

    exchange: Count = Field(description="Updates after which blocks are dealt anew.")
    blocks: Annotated[Int, Field(ge=1, le=1024)] = Field(
        default=4,
        description="Blocks of each rank, about: more are mixed better, and overlap more.",
    )


class DataSection(Strict):
    """Volumes and how they are read."""

    train: tuple[VolumeSection, ...] = Field(default=(), description="Volumes to train on.")
    validation: tuple[VolumeSection, ...] = Field(default=(), description="Volumes to validate on.")
    test: tuple[VolumeSection, ...] | None = Field(
        default=None,
        description="Volumes for the final evaluation (default: those of validation; []: none).",
    )
    target: Target = Field(
        default=BoundaryTarget(kind="boundary"),
        description="What the network learns: boundary, affinity, labels, mask or image.",
    )
    normalize: Normalize = Field(
        default=VolumeNormalize(kind="mean_std"),
        description="Per volume: mean_std (mean 0, deviation 1), unit (scaled to [0, 1]) or none; or fixed, "
        "by numbers of one's own.",
    )
    replace_nonfinite: Bool = Field(
        default=False,
        description="Take NaN and infinite voxels as 0 after normalisation (the mean under mean_std) "
        "instead of refusing them.",
    )
    border: Literal["valid", "mirror"] = Field(
        default="valid",
        description="valid: inputs lie inside the volume; mirror: volumes are mirrored at borders.",
    )
    resolution: Spacing3 | None = Field(
        default=None, description="Voxel size in nanometres, z y x; overrides what the file says."
    )
    axes: Literal["czyx", "zcyx", "zyxc"] = Field(
        default="czyx",
        description="Axes of images that have four, c channels, and do not name them: czyx, zcyx or zyxc (the "
        "latter are read whole).",
    )
    in_memory: Literal["auto", True, False] = Field(
        default="auto", description="Keep volumes in memory: auto (if they fit), true or false."
    )
    shards: ShardsSection | None = Field(
        default=None,
        description="Of several ranks, each keeps a part of the volumes to train on in memory, whatever in_memory "
        "says of others, draws its patches there, and exchanges blocks (default: every rank reads all volumes).",
    )
    allow_external_links: Bool = Field(
        default=False, description="Follow links and virtual datasets into other files."
    )
    allow_filters: tuple[
        Literal[
            "lzf",
            "szip",
            "nbit",
            "scaleoffset",
            "bitshuffle",
            "blosc",
            "blosc2",
            "bzip2",
            "lz4",
            "zfp",
            "zstd",
        ],
        ...,
    ] = Field(
        default=(),
        description="HDF5 compressions to allow beside deflate, lzf, shuffle and fletcher32.",
    )


Axis = Literal["z", "y", "x"]
SWAPS = ("auto", "none", "zyx", "yx", "zy", "zx")


def _swaps(value: Any) -> Any:
    """Letters in any order: xy is yx."""
    if isinstance(value, str) and value and set(value) <= set("zyx"):
        return "".join(sorted(value, reverse=True))
    return value


class AugmentSection(Strict):
    """Random flips and axis swaps of training patches."""

    enabled: Bool = Field(default=True, description="Vary patches at all.")
    flips: Annotated[
        tuple[Axis, ...], BeforeValidator(lambda v: tuple(v) if isinstance(v, str) else v)
    ] = Field(
        default=("z", "y", "x"), description="Axes along which patches are flipped, e.g. [y, x]."
    )
    swaps: Annotated[Literal["auto", "none", "zyx", "yx", "zy", "zx"], BeforeValidator(_swaps)] = (
        Field(
            default="auto",
            description="Axes that are exchanged: zyx, yx, zy, zx, none, or auto "
            "(the axes of equal resolution).",
        )
    )
