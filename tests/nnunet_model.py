"""Model folders of nnU-Net, written without nnU-Net or PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from nnunet_plans import Recipe
from torch_files import Call, save

from znnpy.interop.described import Described
from znnpy.interop.nnunet.architecture import Architecture
from znnpy.interop.nnunet.names import places
from znnpy.interop.nnunet.plans import Plans
from znnpy.network import load_network
from znnpy.network.parameters import parameter_shapes

Arrays = dict[str, np.ndarray]


def weights(recipe: Recipe, seed: int = 0) -> Arrays:
    """Random parameters by nnU-Net's names."""
    plans = Plans.of(Described(recipe.plans, "plans"), "small")
    architecture = Architecture.of(plans.architecture())
    heads = len(recipe.labels) if recipe.regions is None else len(recipe.regions)
    network = load_network({"unet": architecture.unet(len(recipe.schemes), heads)})
    shapes, rng, found = parameter_shapes(network), np.random.default_rng(seed), {}
    for name, place in places(architecture, network).items():
        if place.name not in shapes:
            continue
        shape = shapes[place.name]
        if place.transposed:
            shape = (shape[1], shape[0], *shape[2:])
        if recipe.flat and len(shape) == 5:
            shape = (*shape[:2], *shape[3:])
        scale = 1 / np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 1.0
        found[name] = (rng.standard_normal(shape) * scale).astype("<f4")
    return found


def folder_of(
    recipe: Recipe,
    folder: Path,
    plans: Mapping[str, Any] | None = None,
    dataset: Mapping[str, Any] | None = None,
    change: Callable[[Arrays], Any] = lambda state: None,
    **beside: Any,
) -> Path:
    """A model folder; `plans`, `dataset` and what lies `beside` the weights replace what the recipe says."""
    for fold in recipe.folds:
        state = weights(recipe, fold)
        change(state)
        place = folder / f"fold_{fold}"
        place.mkdir(parents=True)
        args = {"configuration": "small", "fold": fold, "device": Call("torch", "device", ("cpu",))}
        more = {
            "init_args": args,
            "trainer_name": "nnUNetTrainer",
            "inference_allowed_mirroring_axes": recipe.mirrored and tuple(recipe.mirrored),
            **beside,
        }
        save(place / "checkpoint_final.pth", state, key="network_weights", **more)
    (folder / "plans.json").write_text(json.dumps(plans or recipe.plans))
    (folder / "dataset.json").write_text(json.dumps(dataset or recipe.dataset))
    return folder
