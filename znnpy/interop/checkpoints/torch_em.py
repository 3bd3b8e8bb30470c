"""Checkpoints of torch-em, which hold the class of the net and its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from znnpy.errors import ModelFileError
from znnpy.interop.assembled import assembled
from znnpy.interop.classes.origin import network_of
from znnpy.interop.classes.registry import class_of
from znnpy.interop.model import ImportedModel
from znnpy.interop.state_files import state_of
from znnpy.weights.pickled import Name

_OWN = {"conv_block_impl": "ConvBlock", "pooler_impl": "MaxPool", "sampler_impl": "Upsampler"}
"""Arguments that are classes, and how those that are usual begin."""
NORMALIZE = "images are normalised by mean and deviation, as torch-em does by default"


def read(contents: Mapping[Any, Any], path: Path) -> ImportedModel | None:
    """Return the model of a checkpoint; None where it is none of torch-em."""
    said = contents.get("init")
    if not isinstance(said, Mapping) or "model_state" not in contents:
        return None
    name, arguments = said.get("model_class"), said.get("model_kwargs")
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise ModelFileError(
            f"{path}: init must hold model_class, a text, and model_kwargs, a mapping: it says no network"
        )
    given = {str(key): value for key, value in arguments.items() if not _usual(str(key), value)}
    entry = class_of(name, f"{path}: init: model_class", "torch_em")
    found = network_of(entry, given, state_of(contents, path), str(path))
    title = f"{path.name}: {entry.title}"
    return assembled(title, found, {"normalize": "mean_std"}, notes=[NORMALIZE])


def _usual(key: str, value: Any) -> bool:
    """Return whether an argument is a class of torch-em's own, or PyTorch's, that is usual there."""
    if key not in _OWN or not isinstance(value, Name):
        return False
    known = value.module.split(".")[0] in ("torch_em", "torch")
    return known and value.name.startswith(_OWN[key])
