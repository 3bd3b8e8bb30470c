"""Checkpoints of pytorch-3dunet and PanSeg, beside which a YAML file says the network and how images are prepared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from znnpy.errors import ModelFileError
from znnpy.interop.assembled import assembled
from znnpy.interop.classes.origin import network_of
from znnpy.interop.classes.registry import class_of
from znnpy.interop.described import Described
from znnpy.interop.model import ImportedModel
from znnpy.interop.state_files import state_of

NAMES = ("config_train.yml", "config_train.yaml", "train_config.yml", "config.yml", "config.yaml")
FOUND = 100  # files of a folder that are looked through
USUAL = (
    "images are normalised by mean and deviation of the volume, as its predictor does by default"
)


def read(contents: Mapping[Any, Any], path: Path) -> ImportedModel | None:
    """Return the model of a checkpoint and the config beside it; None where there is no such config."""
    config = _config(path)
    if config is None:
        return None
    model = config.inside("model")
    arguments = {key: value for key, value in model.values.items() if key != "name"}
    entry = class_of(model.text("name"), f"{model.where}: name", "pytorch3dunet")
    found = network_of(entry, arguments, state_of(contents, path), str(path))
    notes: list[str] = []
    normalize, patch = _prepared(config, notes)
    return assembled(
        f"{path.name}: {entry.title}", found, {"normalize": normalize}, window=patch, notes=notes, where=config.where
    )  # fmt: skip


def _config(path: Path) -> Described | None:
    """Return the config beside a checkpoint: of a usual name, or the only YAML file that has a model with a name."""
    folder = path.parent
    for name in NAMES:
        if (folder / name).is_file():
            return Described.of_yaml(folder / name)
    others = sorted(islice(folder.glob("*.y*ml"), FOUND))
    fitting = [said for said in map(_read, others) if said is not None and _says(said)]
    if len(fitting) > 1:
        names = ", ".join(Path(said.where).name for said in fitting)
        raise ModelFileError(f"{folder} has several configs that say a network, {names}: leave one")
    return fitting[0] if fitting else None


def _read(path: Path) -> Described | None:
    try:
        return Described.of_yaml(path)
    except ModelFileError:  # whatever else lies there
        return None


def _says(said: Described) -> bool:
    model = said.values.get("model")
    return isinstance(model, dict) and isinstance(model.get("name"), str)


def _prepared(config: Described, notes: list[str]) -> tuple[Any, list[int] | None]:
    """Return data.normalize, and the size of patches, as the loaders say them; of test, else validation."""
    loaders = config.values.get("loaders")
    for part in ("test", "val", "train"):
        said = loaders.get(part) if isinstance(loaders, dict) else None
        if not isinstance(said, dict):
            continue
        where = f"{config.where}: loaders: {part}"
        transformer, builder = said.get("transformer"), said.get("slice_builder")
        raw = transformer.get("raw") if isinstance(transformer, dict) else None
        patch = builder.get("patch_shape") if isinstance(builder, dict) else None
        size = Described({"patch_shape": patch}, where).integers("patch_shape") if patch else None
        if size is not None and len(size) != 3:
            raise ModelFileError(
                f"{where}: slice_builder: patch_shape must hold three sizes; found {patch}"
            )
        return _normalised(raw, where, notes), size
    notes.append(USUAL)
    return "mean_std", None


def _normalised(raw: Any, where: str, notes: list[str]) -> Any:
    steps = [step for step in raw if isinstance(step, dict)] if isinstance(raw, Sequence) else []
    found: Any = None
    for step in steps:
        said = Described(step, f"{where}: transformer: raw: {str(step.get('name'))[:40]}")
        made = _step(said)
        if made is None:
            continue
        if found is not None:
            raise ModelFileError(f"{said.where}: normalises once more, which is not supported")
        found = made
    if found is None:
        notes.append(USUAL)
    return found or "mean_std"


def _step(said: Described) -> Any:
    match said.text("name"):
        case "Standardize" if "mean" in said:
            return {"kind": "fixed", "mean": said.number("mean"), "deviation": said.number("std")}
        case "Standardize":
            return "mean_std"
        case "PercentileNormalizer":
            low = said.number("pmin") if "pmin" in said else 1.0
            high = said.number("pmax") if "pmax" in said else 99.6
            return {"kind": "percentiles", "low": low, "high": high}
        case "Normalize":
            return _range(said)
        case "ToTensor":
            return "range" if said.truth("normalize") else None
        case name if name.startswith(("Random", "Elastic", "Additive")):
            return None
    raise said.wrong("name", "must be Standardize, PercentileNormalizer, Normalize or ToTensor")


def _range(said: Described) -> Any:
    """Return what maps least and largest value to -1 and 1, or to 0 and 1, cut there."""
    if "min_value" not in said or "max_value" not in said:
        if said.truth("norm01"):
            return "range"
        raise said.wrong("min_value", "and max_value must be said where values go from -1 to 1")
    low, high = said.number("min_value"), said.number("max_value")
    if low >= high:
        raise said.wrong("min_value", f"must be below max_value, {high:g}")
    whole = said.truth("norm01")
    return {
        "kind": "clip",
        "low": low,
        "high": high,
        "mean": low if whole else (low + high) / 2,
        "deviation": high - low if whole else (high - low) / 2,
    }
