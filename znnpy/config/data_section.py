"""The `data` and `augment` sections of a config: volumes, targets, normalisation, sharding, flips and axis swaps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from znnpy.config.normalize_section import DeviationNormalize, Normalize
from znnpy.config.prepare_section import PrepareSection
from znnpy.dataset_path import address, joined, split, there
from znnpy.errors import VolumeError
from znnpy.fields import (
    Bool,
    Count,
    FilePath,
    Float,
    Int,
    Offsets,
    Spacing3,
    Strict,
    in_folder,
    shorthand,
    shown,
    wrong,
)
from znnpy.volume_sets import expanded


class Source(Strict):
    """The place of an array: a file and, in some formats, a dataset in it. Written `path` or `path:dataset`."""

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
        # Of typed text, the path is typed; an address is no path from any folder.
        return {"path": Path(path) if address(path) else kind(path), "dataset": dataset}

    @model_serializer
    def text(self) -> str:
        """Return the source as it is written in a config."""
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


def _range(value: tuple[int, int] | None) -> tuple[int, int] | None:
    if value is not None and value[0] >= value[1]:
        raise wrong(f"must rise, as the second is after the last; found {shown(list(value))}")
    return value


Slice = Annotated[Int, Field(ge=0, le=2**40)]
Slices = Annotated[
    tuple[Slice, Slice] | None,
    AfterValidator(_range),
    PlainSerializer(lambda it: it and list(it)),
]


class VolumeSection(Strict):
    """One volume: an image, and labels and a mask of the same size."""

    image: Sources = Field(
        description="Raw image, path or path:dataset; with several inputs, by input node."
    )
    labels: Sources | None = Field(
        default=None,
        description="Labels, path or path:dataset; a mapping by output node where outputs have labels of their own.",
    )
    mask: Sources | None = Field(
        default=None,
        description="Voxels that count in the loss (not 0), path or path:dataset; a mapping by output node where they "
        "differ.",
    )
    slices: Slices = Field(
        default=None,
        description="Slices along z that are used, [first, after the last], of the image, and of labels and mask where "
        "these lie (default: all). So one volume serves for training and, by other slices, for validation.",
    )


def _each(sections: tuple[VolumeSection, ...] | None) -> tuple[VolumeSection, ...] | None:
    """Return sections of one volume each: those of patterns and folders become one for each file."""
    if sections is None:
        return None
    return tuple(one for number, section in enumerate(sections) for one in _of_one(section, number))


def _of_one(section: VolumeSection, number: int) -> list[VolumeSection]:
    groups = {"image": section.image, "labels": section.labels, "mask": section.mask}
    sources = {(role, n): s for role, group in groups.items() for n, s in (group or {}).items()}
    try:
        volumes = expanded({name: source.path for name, source in sources.items()})
    except (VolumeError, OSError) as error:
        raise wrong(f"entry {number + 1}: {error}") from None
    if len(volumes) == 1 and volumes[0] == {name: source.path for name, source in sources.items()}:
        return [section]
    return [_with_paths(section, groups, paths) for paths in volumes]


def _with_paths(
    section: VolumeSection,
    groups: dict[str, dict[str, Source] | None],
    paths: dict[tuple[str, str], Path],
) -> VolumeSection:
    changed = {
        role: {node: s.model_copy(update={"path": paths[role, node]}) for node, s in group.items()}
        for role, group in groups.items()
        if group
    }
    return section.model_copy(update=changed)


Sections = Annotated[tuple[VolumeSection, ...], AfterValidator(_each)]
"""Volumes, of which one entry may name many, by patterns or folders."""


WIDEST = 64  # sigma of a shape descriptor: patches are read with three times that around them


class BoundaryTarget(Strict):
    """One output channel: 1 on boundaries between objects and on background, 0 inside objects."""

    kind: Literal["boundary"] = Field(description="Target.")
    thickness: Count = Field(
        default=1, description="Voxels by which a boundary is widened on either side."
    )


class AffinityTarget(Strict):
    """One output channel per offset: 1 where a voxel and its neighbour belong to the same object, else 0."""

    kind: Literal["affinity"] = Field(description="Target.")
    offsets: Offsets = Field(
        default=((-1, 0, 0), (0, -1, 0), (0, 0, -1)),
        description="Offsets to neighbours in voxels, each z y x (default: the nearest along z, y and x).",
    )


class LsdTarget(Strict):
    """Ten output channels, local shape descriptors (Sheridan et al. 2022): statistics of a voxel's object near it."""

    kind: Literal["lsd"] = Field(description="Target.")
    sigma: Spacing3 = Field(
        default=(10.0, 10.0, 10.0),
        description="Width of the Gaussian around a voxel, in voxels, z y x; it is cut off at three times that.",
    )

    @field_validator("sigma")
    @classmethod
    def _fits(cls, sigma: tuple[float, float, float]) -> tuple[float, float, float]:
        if max(sigma) > WIDEST:
            raise wrong(f"must be at most {WIDEST} voxels; found {max(sigma):g}")
        return sigma


class LabelsTarget(Strict):
    """The labels as they are: class numbers for losses over classes, else values of the output channels."""

    kind: Literal["labels"] = Field(description="Target.")
    ignore: Int | None = Field(
        default=None,
        description="Label of voxels that do not count in the loss, `ignore_index` elsewhere (default: none).",
    )
    first: Annotated[Int, Field(ge=0, lt=2**15)] = Field(
        default=0,
        description="Number of the first class, for losses over classes; lower labels do not count. 1 for labels as "
        "ilastik numbers them: 0 is what nobody has labelled.",
    )


class MaskTarget(Strict):
    """One output channel per channel of the labels: 1 where the label is not 0, else 0."""

    kind: Literal["mask"] = Field(description="Target.")


class ImageTarget(Strict):
    """One output channel per channel of the labels: their values times `scale`, for regression."""

    kind: Literal["image"] = Field(description="Target.")
    scale: Float = Field(
        default=1.0, description="Factor of the values, such as 0.00392157 to map 0..255 to 0..1."
    )

    @field_validator("scale")
    @classmethod
    def _not_zero(cls, scale: float) -> float:
        if scale == 0:
            raise wrong("must not be 0: nothing would be left to learn")
        return scale


class UnknownTarget(Strict):
    """Not known: of networks that were taken over from files that do not say it. They predict, and are not scored."""

    kind: Literal["unknown"] = Field(description="Target.")


Target = Annotated[
    Annotated[
        BoundaryTarget
        | AffinityTarget
        | LsdTarget
        | LabelsTarget
        | MaskTarget
        | ImageTarget
        | UnknownTarget,
        Field(discriminator="kind"),
    ],
    shorthand("kind", str),
]


class ShardsSection(Strict):
    """Sharding: each rank keeps a part of the training volumes in memory, and the parts are exchanged now and then."""

    exchange: Count = Field(
        description="Updates between two exchanges, in which all blocks are dealt to ranks anew."
    )
    blocks: Annotated[Int, Field(ge=1, le=1024)] = Field(
        default=4,
        description="About how many blocks each rank holds: more blocks mix samples better, but overlap more.",
    )


class DataSection(Strict):
    """Volumes, and how they are read, normalised and turned into targets."""

    train: Sections = Field(
        default=(),
        description="Volumes to train on; an entry may name many, by wildcards (train/*_raw.tif) or folders.",
    )
    validation: Sections = Field(default=(), description="Volumes to validate on.")
    test: Sections | None = Field(
        default=None,
        description="Volumes for the final evaluation (default: those of validation; []: no evaluation).",
    )
    target: Target = Field(
        default=BoundaryTarget(kind="boundary"),
        description="What the network learns: boundary, affinity, lsd, labels, mask or image; unknown where a network "
        "that was taken over does not say it.",
    )
    normalize: Normalize = Field(
        default=DeviationNormalize(kind="mean_std"),
        description="mean_std (to mean 0, deviation 1), range or percentiles (from 0 to 1): of a volume or a slice; "
        "unit (integers to [0, 1] by their type); none; by given numbers: fixed or clip; ct: clip, by labelled voxels.",
    )
    prepare: PrepareSection | None = Field(
        default=None,
        description="Preparation of scans as nnU-Net does it, before normalize, which is none where prepare has one "
        "(default: none).",
    )
    replace_nonfinite: Bool = Field(
        default=False,
        description="true: NaN and infinite voxels become 0 after normalisation (the mean under mean_std); false: "
        "they are refused.",
    )
    border: Literal["valid", "mirror"] = Field(
        default="valid",
        description="valid: inputs lie inside the volume; mirror: volumes are mirrored at their borders.",
    )
    resolution: Spacing3 | None = Field(
        default=None, description="Voxel size in nanometres, z y x; overrides what files say."
    )
    axes: Literal["czyx", "zcyx", "zyxc"] = Field(
        default="czyx",
        description="Order of axes of four-dimensional images that do not name them, c for channels: czyx, zcyx or "
        "zyxc (the latter two are read whole).",
    )
    in_memory: Literal["auto", True, False] = Field(
        default="auto", description="Keep volumes in memory: auto (if they fit), true or false."
    )
    shards: ShardsSection | None = Field(
        default=None,
        description="With several ranks: each keeps a part (shard) of the training volumes in memory, whatever "
        "in_memory says, draws its patches there, and exchanges blocks with others (default: every rank "
        "reads all volumes).",
    )
    allow_external_links: Bool = Field(
        default=False, description="Follow HDF5 links and virtual datasets into other files."
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
            "sz",
            "sz3",
            "sperr",
            "bzip2",
            "lz4",
            "zfp",
            "zstd",
        ],
        ...,
    ] = Field(
        default=(),
        description="HDF5 compression filters to allow beside deflate, lzf, shuffle and fletcher32.",
    )

    @model_validator(mode="after")
    def _prepared_once(self) -> DataSection:
        normalised = self.prepare is not None and self.prepare.normalize is not None
        if normalised and self.normalize.kind != "none":
            raise wrong("must be none: prepare.normalize normalises scans", "normalize")
        if self.prepare is not None and self.normalize.kind == "ct":
            raise wrong("must not be ct where scans are prepared: write a clip", "normalize")
        return self
