"""Model folders that nnU-Net's own trainer writes, with random weights."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from nnunet_plans import Recipe


def written(recipe: Recipe, folder: Path) -> Path:
    """The model folder, each fold saved by nnU-Net's trainer."""
    roots = {f"nnUNet_{name}": folder / name for name in ("raw", "preprocessed", "results")}
    for name, root in roots.items():
        os.environ.setdefault(name, str(root))
    # The kind of files there says how it would read them.
    prepared = Path(os.environ[[*roots][1]]) / "Dataset001_X" / "x"
    prepared.mkdir(parents=True, exist_ok=True)
    (prepared / "a.b2nd").touch()
    os.environ.setdefault("nnUNet_compile", "false")
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    model = folder / "nnUNetTrainer__nnUNetPlans__small"
    model.mkdir(parents=True)
    for fold in recipe.folds:
        plans = recipe.plans | {"continue_training": False}
        trainer = nnUNetTrainer(plans, "small", fold, recipe.dataset, torch.device("cpu"))
        torch.manual_seed(fold)
        trainer.initialize()
        _shake(trainer.network, fold)
        trainer.inference_allowed_mirroring_axes = recipe.mirrored
        place = model / f"fold_{fold}"
        place.mkdir()
        trainer.save_checkpoint(str(place / "checkpoint_final.pth"))
    (model / "plans.json").write_text(json.dumps(recipe.plans))
    (model / "dataset.json").write_text(json.dumps(recipe.dataset))
    return model


def _shake(net: Any, seed: int) -> None:
    """Norms and biases that have work to do, and logits of some size."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in net.named_parameters():
            if tensor.ndim == 1:
                tensor += 0.3 * torch.randn(tensor.shape, generator=generator)
            elif "seg_layers" in name:
                tensor *= 8
