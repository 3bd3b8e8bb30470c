"""A model folder of nnU-Net v2, or a checkpoint in one, as a config and the weights of each fold."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from znnpy.errors import ModelFileError, ZnnpyError
from znnpy.interop.described import Described
from znnpy.interop.model import ImportedModel
from znnpy.interop.nnunet.architecture import Architecture
from znnpy.interop.nnunet.labels import Labels
from znnpy.interop.nnunet.plans import Plans
from znnpy.interop.nnunet.preparation import inference_keys, prepare_keys, window
from znnpy.interop.nnunet.weights import parameters_of, read_checkpoint
from znnpy.network import load_network

PLANS, DATASET = "plans.json", "dataset.json"
CHECKPOINTS = ("checkpoint_final.pth", "checkpoint_best.pth")
EPOCH = 250  # updates
EPOCHS = 1000


def is_model(path: Path) -> bool:
    """Return whether a path is a model folder, or a checkpoint in a fold of one."""
    folder = path if path.is_dir() else path.parent.parent
    return (folder / PLANS).is_file() and (folder / DATASET).is_file()


def read_model(path: Path) -> ImportedModel:
    """Return the model of all folds of a folder, or of the fold whose checkpoint is named."""
    folder = path if path.is_dir() else path.parent.parent
    members = {path.parent.name: path} if path.is_file() else _folds(folder)
    first = read_checkpoint(next(iter(members.values())))
    plans = Plans.of(Described.of_file(folder / PLANS), _configuration(first, folder))
    labels = Labels.of(Described.of_file(folder / DATASET))
    architecture = Architecture.of(plans.architecture())
    if architecture.dimensions != plans.dimensions:
        raise plans.configuration.wrong(
            "patch_size", f"must have the {architecture.dimensions} dimensions of the net"
        )
    unet = architecture.unet(labels.channels, labels.heads)
    try:
        network = load_network({"unet": unet})
    except ZnnpyError as error:
        raise ModelFileError(f"{folder / PLANS}: {error}") from error
    mirrored = first.get("inference_allowed_mirroring_axes")
    config = {
        "network": {"unet": unet},
        "data": {
            "prepare": prepare_keys(plans, labels.channels),
            "normalize": "none",
            **_target(labels),
        },
        "training": _training(plans, labels, len(architecture.widths)),
        "inference": inference_keys(plans, labels, mirrored),
    }
    return ImportedModel(
        f"nnU-Net {plans.name}, {architecture.kind}, {', '.join(members)}",
        config,
        {
            name: partial(parameters_of, checkpoint, architecture, network)
            for name, checkpoint in members.items()
        },
    )


def _folds(folder: Path) -> dict[str, Path]:
    """Return the checkpoint of each fold that is trained; `fold_all` only where there is no other, as in nnU-Net."""
    for name in CHECKPOINTS:
        found = {path.parent.name: path for path in sorted(folder.glob(f"fold_*/{name}"))}
        numbered = {fold: path for fold, path in found.items() if fold != "fold_all"}
        if found:
            return numbered or found
    raise ModelFileError(f"{folder} has no fold_*/{' or '.join(CHECKPOINTS)}")


def _configuration(checkpoint: dict[str, Any], folder: Path) -> str:
    """Return the name of the configuration that a checkpoint was trained with."""
    said = checkpoint.get("init_args")
    name = said.get("configuration") if isinstance(said, dict) else None
    if not isinstance(name, str):
        raise ModelFileError(f"{folder}: its checkpoint does not say its configuration (init_args)")
    return name


def _target(labels: Labels) -> dict[str, Any]:
    """Return the keys of `data` that say what the net learns."""
    if labels.regions is not None:
        return {"target": "mask"}
    ignore = {} if labels.ignore is None else {"ignore": labels.ignore}
    return {"target": {"kind": "labels", **ignore}}


def _training(plans: Plans, labels: Labels, levels: int) -> dict[str, Any]:
    """Return the keys of nnU-Net's own training, with which a run may go on from these weights."""
    batch = plans.configuration.integer("batch_size")
    kind = "ce_dice" if labels.regions is None else "bce_dice"
    loss: dict[str, Any] = {"kind": kind, "batch": plans.configuration.truth("batch_dice")}
    if labels.regions is None:
        loss["include_background"] = False
    # Each coarser output counts half as much as the one above it, the last not at all.
    shares = [2.0**-level for level in range(levels - 1)]
    if levels > 2:
        shares[-1] = 0.0
    total = sum(shares)
    names = [f"output{level or ''}" for level in range(levels - 1)]
    return {
        "output_shape": window(plans),
        "iterations": EPOCHS * EPOCH,
        "batch": batch,
        "microbatch": 1,
        "loss": loss,
        "outputs": {
            name: {"weight": share / total} for name, share in zip(names, shares, strict=True)
        },
        "optimizer": {"kind": "sgd", "momentum": 0.99, "nesterov": True, "weight_decay": 3e-5},
        "learning_rate": 0.01,
        "schedule": {"kind": "poly", "power": 0.9},
        "clip_norm": 12.0,
    }
