"""A bundle's transforms before its net as keys of `data`; those that have none are named in notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from znnpy.data.preparing.resampling import MILLIMETRE
from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.monai.references import Bundle, UnreadError, transform_name

IMAGE = "image"
_NOTHING = (
    "LoadImage", "EnsureChannelFirst", "AddChannel", "AsChannelFirst", "EnsureType", "ToTensor", "CastToType",
    "ToDevice", "SelectItems", "DeleteItems", "CopyItems", "Identity",
)  # fmt: skip
"""Those that change no value of an image as it is read here."""


@dataclass
class Before:
    """What comes before the net: `orient` and `spacing` (nm, in the order of the net's axes), and `normalize`."""

    dimensions: int
    channels: int
    orient: str | None = None
    spacing: list[float | None] | None = None
    normalize: Any = None
    notes: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """Return keys of `data`."""
        linear = {"order": 1, "grid": "centres"}
        prepare: dict[str, Any] = {"crop": False}
        if self.orient is not None:
            prepare["orient"] = self.orient
        else:  # axes in the order of the file's header, x first
            prepare["transpose"] = [2, 1, 0] if self.dimensions == 3 else [0, 2, 1]
        if self.spacing is not None:
            prepare |= {"spacing": self.spacing, "resample": linear, "restore": linear}
        return {"prepare": prepare, "normalize": self.normalize or "none"}


def read_before(bundle: Bundle, key: str | None, dimensions: int, channels: int) -> Before:
    """Return what the transforms of an entry (Compose, or a list) say."""
    before = Before(dimensions, channels)
    if key is None:
        before.notes.append(
            f"{bundle.where}: has no preprocessing: images go in as they are (data.normalize none)"
        )
        return before
    try:
        entries = bundle.items(key if isinstance(bundle.raw(key), list) else f"{key}::transforms")
    except UnreadError as error:
        before.notes.append(f"{error}; images go in as they are")
        return before
    for entry in entries:
        try:
            _add(bundle, entry, before)
        except UnreadError as error:
            before.notes.append(f"{error}; the transform is left out")
    return before


def _add(bundle: Bundle, entry: str, before: Before) -> None:
    name = transform_name(bundle.target(entry))
    if bundle.raw(entry).get("_disabled_", False) is True or name in _NOTHING:
        return
    keys = bundle.arguments(entry, ("keys",)).get("keys", IMAGE)
    names = keys if isinstance(keys, list) else [keys]
    if IMAGE not in names:
        return
    said = Keywords(bundle.arguments(entry), f"{bundle.where}: {entry}: {name}")
    step = _STEPS.get(name)
    why = "is left out" if step is None else step(said, before, names.index(IMAGE))
    if why:
        before.notes.append(f"{said.where}: {why}")


def _orientation(said: Keywords, before: Before, _: int) -> str | None:
    letters = said.values.get("axcodes")
    if said.truth("as_closest_canonical"):
        letters = "RAS"
    if before.spacing is not None or not isinstance(letters, str) or said.values.get("labels"):
        return "is left out: letters such as RAS, before Spacing, are supported"
    if before.dimensions != 3 or len(letters) != 3:
        return "is left out: of three dimensions, it is supported"
    before.orient = letters
    return None


def _spacing(said: Keywords, before: Before, place: int) -> str | None:
    given = said.values.get("pixdim")
    sizes: list[Any] = list(given) if isinstance(given, list) else [given]
    if not all(type(size) in (int, float) for size in sizes):
        raise UnreadError(f"{said.where}: pixdim must hold numbers")
    sizes = (sizes + sizes[-1:] * before.dimensions)[: before.dimensions]
    found: list[float | None] = [size * MILLIMETRE if size > 0 else None for size in sizes]
    before.spacing = [*[None] * (3 - before.dimensions), *found]
    mode = said.values.get("mode", "bilinear")
    mode = mode[min(place, len(mode) - 1)] if isinstance(mode, list) and mode else mode
    others = [
        key
        for key in ("diagonal", "scale_extent", "min_pixdim", "max_pixdim")
        if said.values.get(key)
    ]
    if others:
        return f"{others[0]} is not heeded"
    if mode not in ("bilinear", 1):
        return f"interpolates linearly, and not by mode {mode}"
    late = before.normalize is not None and _kind(before.normalize) != "fixed"
    return "comes before normalisation here" if late else None


def _kind(normalize: Any) -> str:
    return str(normalize["kind"] if isinstance(normalize, Mapping) else normalize)


def _set(before: Before, normalize: Any) -> str | None:
    if before.normalize is not None:
        return "is left out: images are normalised once"
    before.normalize = normalize
    return None


def _range(said: Keywords, before: Before, _: int) -> str | None:
    low, high = said.number("a_min"), said.number("a_max")
    if "b_min" not in said or "b_max" not in said or low >= high:
        return "is left out: a_min below a_max, b_min and b_max are supported"
    least, most = said.number("b_min"), said.number("b_max")
    if least >= most:
        return "is left out: b_min below b_max is supported"
    deviation = (high - low) / (most - least)
    numbers = {"mean": low - least * deviation, "deviation": deviation}
    if said.truth("clip"):
        return _set(before, {"kind": "clip", "low": low, "high": high, **numbers})
    return _set(before, {"kind": "fixed", **numbers})


def _normalised(said: Keywords, before: Before, _: int) -> str | None:
    if "subtrahend" in said and "divisor" in said:
        each = {
            ours: said.numbers(theirs)
            if isinstance(said.values[theirs], list)
            else said.number(theirs)
            for ours, theirs in (("mean", "subtrahend"), ("deviation", "divisor"))
        }
        if said.truth("nonzero"):
            return "is left out: given numbers for voxels that are not 0 are not supported"
        return _set(before, {"kind": "fixed", **each})
    if "subtrahend" in said or "divisor" in said:
        return "is left out: subtrahend and divisor together are supported"
    return _by_channel(said, before, {"kind": "mean_std", "nonzero": said.truth("nonzero")})


def _by_channel(said: Keywords, before: Before, normalize: Any) -> str | None:
    if before.channels > 1 and not said.truth("channel_wise"):
        return "is left out: of all channels together is not supported"
    return _set(before, normalize)


def _scaled(said: Keywords, before: Before, _: int) -> str | None:
    ends = [said.values.get("minv", 0), said.values.get("maxv", 1)]
    if ends != [0, 1] or "factor" in said:
        return "is left out: from 0 to 1 is supported"
    return _by_channel(said, before, "range")


def _percentiles(said: Keywords, before: Before, _: int) -> str | None:
    ends = [said.values.get("b_min"), said.values.get("b_max")]
    if ends != [0, 1] or said.truth("relative"):
        return "is left out: from 0 to 1 is supported"
    clip = said.truth("clip")
    low, high = said.number("lower"), said.number("upper")
    return _by_channel(
        said, before, {"kind": "percentiles", "low": low, "high": high, "clip": clip}
    )


def _cropped(said: Keywords, before: Before, _: int) -> str | None:
    return "is left out: all of the scan is predicted"


_STEPS: dict[str, Callable[[Keywords, Before, int], str | None]] = {
    "Orientation": _orientation,
    "Spacing": _spacing,
    "ScaleIntensityRange": _range,
    "NormalizeIntensity": _normalised,
    "ScaleIntensity": _scaled,
    "ScaleIntensityRangePercentiles": _percentiles,
    "CropForeground": _cropped,
}
