"""A bundle of MONAI with random weights, written without MONAI or PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from class_states import drawn
from torch_files import save

NET = {
    "_target_": "UNet", "spatial_dims": 3, "in_channels": 1, "out_channels": "@classes", "channels": [2, 4],
    "strides": [2], "act": "RELU", "norm": "BATCH",
}  # fmt: skip
SHAPES = {
    "model.0.conv.weight": (2, 1, 3, 3, 3), "model.0.conv.bias": (2,), "model.1.submodule.conv.weight": (4, 2, 3, 3, 3),
    "model.1.submodule.conv.bias": (4,), "model.2.conv.weight": (6, 3, 3, 3, 3), "model.2.conv.bias": (3,),
    **{
        f"model.{place}.adn.N.{part}": (n,)
        for place, n in (("0", 2), ("1.submodule", 4))
        for part in ("weight", "bias", "running_mean", "running_var")
    },
}  # fmt: skip
ARRAYS = {name: np.abs(tensor.array()) for name, tensor in drawn(SHAPES).items()}
WINDOWS = {
    "_target_": "SlidingWindowInferer",
    "roi_size": [8, 16, 16],
    "overlap": 0.25,
    "device": "$device",
}


def before(*steps: Any) -> dict[str, Any]:
    return {"_target_": "Compose", "transforms": list(steps)}


def bundle(
    folder: Path, text: str | None = None, name: str = "inference.json", **more: Any
) -> Path:
    said = {"classes": 3, "network_def": NET, "inferer": WINDOWS, "preprocessing": before(), **more}
    (folder / "configs").mkdir(parents=True)
    (folder / "models").mkdir()
    (folder / "configs" / name).write_text(text or json.dumps(said))
    save(folder / "models/model.pt", ARRAYS, key="model")
    return folder
