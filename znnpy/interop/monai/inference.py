"""A bundle's inferer and what follows its net, as keys of `inference`; what has none is named in notes."""

from __future__ import annotations

from typing import Any

from znnpy.errors import ModelFileError
from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.monai.references import Bundle, UnreadError, transform_name

WINDOWS, WHOLE = "SlidingWindowInferer", "SimpleInferer"
_READ = ("roi_size", "overlap", "mode", "sigma_scale", "padding_mode", "cval")
"""Arguments of an inferer that say what is computed; others say where, and how much at once."""
_SIGMA = 0.125
_DONE = (
    "Invert",
    "SaveImage",
    "EnsureType",
    "ToTensor",
    "CastToType",
    "DeleteItems",
    "SelectItems",
    "CopyItems",
)


def read_windows(
    bundle: Bundle, key: str | None, dimensions: int, notes: list[str]
) -> tuple[list[int] | None, dict[str, Any]]:
    """Return the voxels of a window (z, y, x), and the other keys of `inference`."""
    if key is None:
        notes.append(f"{bundle.where}: has no inferer: inference.window is a patch")
        return None, {}
    name = bundle.target(key).rpartition(".")[2]
    said = Keywords(bundle.arguments(key, _READ), f"{bundle.where}: {key}: {name}")
    if name == WHOLE:
        notes.append(
            f"{said.where}: the whole image at once there; in windows (inference.window) here"
        )
        return None, {}
    if name != WINDOWS:
        raise ModelFileError(f"{said.where}: is not supported: {WINDOWS} and {WHOLE} are")
    size: Any = said.sizes("roi_size")
    window = size if isinstance(size, list) else [size] * dimensions
    if len(window) != dimensions:
        raise said.wrong("roi_size", f"must hold {dimensions} numbers")
    blend = said.text("mode").lower().rpartition(".")[2] if "mode" in said else "constant"
    if blend not in ("constant", "gaussian"):
        raise said.wrong("mode", "must be constant or gaussian")
    if blend == "gaussian" and said.values.get("sigma_scale", _SIGMA) != _SIGMA:
        raise said.wrong("sigma_scale", f"must be {_SIGMA}")
    if said.values.get("padding_mode", "constant") != "constant" or said.values.get("cval", 0):
        notes.append(f"{said.where}: scans smaller than a window are padded by 0 here")
    flat = 3 - dimensions
    share: Any = said.values.get("overlap", 0.25)
    shares = share if isinstance(share, list) else [share] * dimensions
    if len(shares) != dimensions or not all(type(n) in (int, float) and 0 <= n < 1 for n in shares):
        raise said.wrong("overlap", "must be from 0 to below 1")
    return [1] * flat + window, {"overlap": [0.0] * flat + shares, "blend": blend}


def read_after(
    bundle: Bundle, key: str | None, channels: int, notes: list[str]
) -> list[int] | None:
    """Return the label of each channel above a half; None where the largest channel is the label."""
    found: bool | None = None
    for entry in _entries(bundle, key, notes):
        try:
            name = transform_name(bundle.target(entry))
            given = {} if name in _DONE else bundle.arguments(entry)
        except UnreadError as error:
            notes.append(f"{error}; the transform is left out")
            continue
        said = Keywords(given, f"{bundle.where}: {entry}: {name}")
        if name == "Activations":
            found = _truth(said, "sigmoid") or (False if _truth(said, "softmax") else found)
        elif name == "AsDiscrete":
            found = False if _truth(said, "argmax") else _half(said, notes) or found
        elif name not in _DONE:
            notes.append(f"{said.where}: is left out")
    if channels == 1 or found:
        if channels > 1:
            notes.append(
                f"{bundle.where}: a voxel in several channels gets the number of the last; --logits writes all channels"
            )
        return [*range(1, channels + 1)]
    return None


def _entries(bundle: Bundle, key: str | None, notes: list[str]) -> list[str]:
    if key is None:
        return []
    try:
        return bundle.items(key if isinstance(bundle.raw(key), list) else f"{key}::transforms")
    except UnreadError as error:
        notes.append(f"{error}; what follows the net is left out")
        return []


def _truth(said: Keywords, key: str) -> bool:
    """Return whether a switch, or any in a list of them, is on."""
    value = said.values.get(key)
    return any(one is True for one in (value if isinstance(value, list) else [value]))


def _half(said: Keywords, notes: list[str]) -> bool:
    """Return whether there is a threshold; a half is what is cut at here."""
    value = said.values.get("threshold")
    value = value[0] if isinstance(value, list) and value else value
    if type(value) not in (int, float):
        return False
    if value != 0.5:
        notes.append(f"{said.where}: threshold {value} is a half here")
    return True
