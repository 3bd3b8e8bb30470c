"""Field types that config sections share: strict numbers, triples z y x, padding, paths, memory sizes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from znnpy.dataset_path import address, refuse_elsewhere, there
from znnpy.errors import VolumeError

Sides = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""Voxels before and after, along z, y and x."""


class Strict(BaseModel):
    """A frozen model that refuses unknown keys, NaN and infinity."""

    model_config = ConfigDict(
        # With the section that holds it, when a config is first read: by itself each would be built again.
        defer_build=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        populate_by_name=True,
        use_attribute_docstrings=False,
    )


def wrong(message: str, *key: str | int) -> PydanticCustomError:
    """Return an error about a key below the place where it is raised; no `key` for the place itself."""
    # The message is data, never a format string: it may hold braces typed by the user.
    return PydanticCustomError("znnpy", "{text}", {"text": message, "key": list(key)})


Int = Annotated[int, Field(strict=True)]
Float = Annotated[float, Field(strict=True)]
Bool = Annotated[bool, Field(strict=True)]
Count = Annotated[Int, Field(ge=1, le=2**40)]
Channels = Annotated[Int, Field(ge=1, le=2**16)]
Probability = Annotated[Float, Field(gt=0, le=1)]
Fraction = Annotated[Float, Field(ge=0, lt=1)]
Positive = Annotated[Float, Field(gt=0)]
NonNegative = Annotated[Float, Field(ge=0)]


Factor = Annotated[NonNegative, Field(le=1e9)]
"""A factor of a loss or a part of it; the limit keeps gradients in the range of float32."""


def _other_than_zero(value: float) -> float:
    if value == 0:
        raise wrong("must not be 0")
    return value


NonZero = Annotated[Float, AfterValidator(_other_than_zero)]


def _cube(value: Any) -> Any:
    """Make a triple z, y, x of one number, or check that there are three."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (value, value, value)
    if isinstance(value, list | tuple) and len(value) == 3:
        return value
    raise wrong(f"must be a number or a list of three, [z, y, x]; found {shown(value)}")


def shown(value: Any) -> str:
    """Return a value as errors repeat it: short, in YAML's words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def of_python(value: Any) -> Any:
    """Return the Python number of a NumPy scalar or an array of one; anything else unchanged."""
    alone = getattr(value, "shape", None) == () and callable(getattr(value, "item", None))
    return value.item() if alone else value


def _triple_schema(item: dict[str, Any]) -> WithJsonSchema:
    triple = {"type": "array", "items": item, "minItems": 3, "maxItems": 3}
    return WithJsonSchema({"anyOf": [item, triple]})


MOST_VOXELS = (
    2**20
)  # along one axis; larger numbers are typing errors, and products of three fit into 64 bits
Extent = Annotated[Int, Field(ge=1, le=MOST_VOXELS)]
Size3 = Annotated[
    tuple[Extent, Extent, Extent],
    BeforeValidator(_cube),
    _triple_schema({"type": "integer", "minimum": 1}),
]
"""Three positive integers z, y, x; one integer stands for a cube."""

Margin = Annotated[Int, Field(ge=0, le=2**20)]
Offset3 = Annotated[
    tuple[Margin, Margin, Margin],
    BeforeValidator(_cube),
    _triple_schema({"type": "integer", "minimum": 0}),
]
"""Three non-negative integers z, y, x; one integer stands for all three."""

_Change = Annotated[Int, Field(ge=-(2**20), le=2**20)]
Change3 = Annotated[
    tuple[_Change, _Change, _Change],
    BeforeValidator(_cube),
    _triple_schema({"type": "integer"}),
]
"""Three integers z, y, x, also negative ones; one integer stands for all three."""


def _sides(value: Any) -> Any:
    """Make pairs (before, after) along z, y and x; a number stands for both sides, one entry for all axes."""
    if value == "same":
        return value
    try:
        return tuple(_pair(item) for item in _cube(value))
    except (ValueError, TypeError):
        form = "one, three [z, y, x], three pairs [[before, after], ...], or same"
        raise wrong(f"must be whole numbers of voxels, {form}; found {shown(value)}") from None


def _pair(value: Any) -> tuple[int, int]:
    before, after = value if isinstance(value, list | tuple) else (value, value)
    if any(type(side) is not int or not 0 <= side <= 2**20 for side in (before, after)):
        raise ValueError
    return before, after


_MARGIN: dict[str, Any] = {"type": "integer", "minimum": 0}
_SIDES = {"type": "array", "items": _MARGIN, "minItems": 2, "maxItems": 2}
Padding3 = Annotated[
    Sides | Literal["same"],
    BeforeValidator(_sides),
    WithJsonSchema(
        {
            "anyOf": [
                _MARGIN,
                {
                    "type": "array",
                    "items": {"anyOf": [_MARGIN, _SIDES]},
                    "minItems": 3,
                    "maxItems": 3,
                },
                {"enum": ["same"]},
            ]
        }
    ),
]
"""Voxels of padding before and after along z, y, x; `same` keeps the size.

One number stands for both sides of an axis, one entry for all axes.
"""


def _neighbours(offsets: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
    for index, offset in enumerate(offsets):
        if not any(offset):
            raise wrong("must not be 0, 0, 0: a voxel is no neighbour of itself", index)
        if offset in offsets[:index]:
            raise wrong("is there already; each neighbour has one channel", index)
    return offsets


Step = Annotated[Int, Field(ge=-(2**20), le=2**20)]
Offsets = Annotated[
    tuple[tuple[Step, Step, Step], ...], Field(min_length=1), AfterValidator(_neighbours)
]
"""Offsets of a voxel's neighbours, each z y x: none twice, and none zero."""

Spacing3 = Annotated[
    tuple[Positive, Positive, Positive],
    BeforeValidator(_cube),
    _triple_schema({"type": "number", "exclusiveMinimum": 0}),
]
"""Three positive lengths z, y, x; one number stands for all three."""


Share3 = Annotated[
    tuple[Fraction, Fraction, Fraction],
    BeforeValidator(_cube),
    _triple_schema({"type": "number", "minimum": 0, "exclusiveMaximum": 1}),
]
"""Three fractions in [0, 1), z, y, x; one number stands for all three."""


class Typed(str):
    """Text of an override, typed at a prompt: a path in it counts from the current folder."""

    __slots__ = ()


def typed(value: Any) -> Any:
    """Return plain values with every text in them marked as typed."""
    match value:
        case str():
            return Typed(value)
        case list():
            return [typed(item) for item in value]
        case dict():
            return {key: typed(item) for key, item in value.items()}
    return value


def in_folder(path: str, info: ValidationInfo) -> Path:
    """Return the path as seen from the config file's folder, if there is one; typed paths from the current folder."""
    folder = Path.cwd() if isinstance(path, Typed) else (info.context or {}).get("folder")
    try:
        found = Path(path).expanduser()
    except RuntimeError:
        raise wrong(f"names a home that is not known; found {shown(str(path))}") from None
    return Path(folder, found) if folder is not None and not address(found) else found


def _path(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise wrong(f"must be a path; found {shown(value)}")
    found = in_folder(value, info)
    try:
        refuse_elsewhere(value, lambda _: there(str(found)))
    except VolumeError as error:
        raise wrong(f"must be a path; {error}") from None
    return found


FilePath = Annotated[
    Path, BeforeValidator(_path), PlainSerializer(str), WithJsonSchema({"type": "string"})
]
"""A path; relative ones count from the folder of the config file, in overrides from the current folder."""

UNITS = {"": 1, "b": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("kmgt", start=1)
    for suffix, base in (("", 1024), ("b", 1000), ("ib", 1024))
}


def _bytes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    if match is None or match[2].lower() not in UNITS:
        raise wrong(f"must be bytes or a size such as 8GiB, 500MB; found {shown(value)}")
    return int(float(match[1]) * UNITS[match[2].lower()])


Bytes = Annotated[
    Annotated[Int, Field(ge=1, le=2**60)],
    BeforeValidator(_bytes),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]}),
]
"""A number of bytes; also `8GiB`, `500MB`, `2G` (KB, MB, GB count in thousands, K, M, G and KiB, MiB, GiB in 1024)."""


def shorthand(key: str, *types: type) -> BeforeValidator:
    """Return a validator that takes a bare value of one of these types as `{key: value}`."""

    def expand(value: Any) -> Any:
        plain = isinstance(value, types) and not isinstance(value, bool)
        return {key: value} if plain else value

    return BeforeValidator(expand)
