"""A bundle's folder as a config and weights: its network by class, windows, what comes before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from znnpy.errors import ModelFileError
from znnpy.interop.assembled import assembled
from znnpy.interop.classes.origin import network_of
from znnpy.interop.classes.registry import class_of
from znnpy.interop.described import Described
from znnpy.interop.model import ImportedModel
from znnpy.interop.monai.inference import read_after, read_windows
from znnpy.interop.monai.references import Bundle
from znnpy.interop.monai.transforms import read_before
from znnpy.interop.state_files import read_contents, state_of

CONFIGS = tuple(
    f"configs/{name}.{suffix}"
    for name in ("inference", "evaluate", "train")
    for suffix in ("json", "yaml", "yml")
)
WEIGHTS = "models/model.pt"
NETWORKS = ("network_def", "network", "net_def", "model_def")


def is_model(path: Path) -> bool:
    """Return whether a path is a bundle: a folder with configs and models."""
    return _config(path) is not None


def _config(path: Path) -> Path | None:
    return next((path / name for name in CONFIGS if (path / name).is_file()), None)


def read_model(path: Path) -> ImportedModel:
    """Return the model of a bundle; ModelFileError names what is not supported, by its id in the config."""
    config = _config(path)
    assert config is not None
    bundle = Bundle.of_file(config)
    key = bundle.first(*NETWORKS)
    if key is None:
        raise ModelFileError(
            f"{config}: has no {' or '.join(NETWORKS[:2])}, which names the network"
        )
    target, arguments = bundle.target(key), bundle.arguments(key)
    entry = class_of(target, f"{config}: {key}", "monai")
    weights = path / WEIGHTS
    if not weights.is_file():
        raise ModelFileError(
            f"{path} has no {WEIGHTS}, which a state dict lies in; TorchScript is not read"
        )
    found = network_of(entry, arguments, state_of(read_contents(weights), weights), str(weights))
    (image,), outputs = found.network.inputs, found.network.outputs
    dimensions = int(
        arguments.get("spatial_dims") or arguments.get("dimensions") or entry.usual["spatial_dims"]
    )
    before = read_before(
        bundle, bundle.first("preprocessing", "validate::preprocessing"), dimensions, image.channels
    )
    notes = before.notes
    window, inference = read_windows(
        bundle, bundle.first("inferer", "validate::inferer"), dimensions, notes
    )
    regions = read_after(
        bundle, bundle.first("postprocessing", "validate::postprocessing"), outputs[0].channels, notes
    )  # fmt: skip
    if regions is not None:
        inference["regions"] = regions
    return assembled(
        f"{_title(path)}: {entry.title}", found, {**before.data(), **_target(regions)}, window=window,
        inference=inference, training={"loss": {"kind": "ce_dice" if regions is None else "bce_dice"}}, notes=notes,
        where=str(config),
    )  # fmt: skip


def _target(regions: list[int] | None) -> dict[str, Any]:
    return {"target": {"kind": "labels"} if regions is None else "mask"}


def _title(path: Path) -> str:
    metadata = path / "configs/metadata.json"
    said = Described.of_file(metadata).values if metadata.is_file() else {}
    name = said.get("name")
    return f"MONAI bundle {name if isinstance(name, str) else path.absolute().name}"[:120]
