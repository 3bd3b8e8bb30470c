"""A small trained net on a small file, and predictions of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from znnpy.config import config_from
from znnpy.data.opening import open_volume
from znnpy.data.scene import Scene
from znnpy.data.writing.destination import Destination
from znnpy.infer.block_writer import run_job
from znnpy.infer.config_model import Weights
from znnpy.infer.job import Job, plan_job
from znnpy.infer.request import Request
from znnpy.network import build_network, initial_parameters

LAYERS = [
    {"conv": {"channels": 5, "size": [1, 3, 2], "function": "relu"}},
    {"max_filter": [1, 2, 2]},
    {"conv": {"channels": 2, "size": [3, 2, 3]}},
]
EXTENT = (9, 17, 19)
PATCH = (4, 5, 6)


@dataclass
class Small:
    """`weights` and an input file in `folder`; `request` is changed by keyword for each job."""

    folder: Path
    weights: Weights
    request: Request

    def scene(self) -> Scene:
        """The file, open; never in memory."""
        return Scene({"input": open_volume(self.folder / "raw.h5")}, {})

    def job(self, scene: Scene, name: str = "out.h5", patches: Any = None, **changes: Any) -> Job:
        """A planned prediction of a run that remembers `patches`."""
        request = replace(self.request, **changes)
        return plan_job(self.weights, scene, request, self.folder / name, patches=patches or {})

    def run(self, name: str = "out.h5", overwrite: bool = False, **changes: Any) -> np.ndarray:
        """Predict to a file and read it."""
        with self.scene().reference as volume:
            job = self.job(Scene({"input": volume}, {}), name, **changes)
            run_job(job, Destination(self.folder / name, "p", overwrite))
        with h5py.File(self.folder / name) as file:
            return file["p"][...]


def small(
    folder: Path,
    conv: str = "direct",
    threads: int = 2,
    extent: tuple[int, int, int] = EXTENT,
    network: dict[str, Any] | None = None,
    inference: dict[str, Any] | None = None,
    shape: int | tuple[int, int, int] = 4,
    **run: Any,
) -> Small:
    """Write the input and make weights."""
    config = config_from(
        {
            "network": network or {"layers": LAYERS},
            "data": {"border": "mirror"},
            "training": {"output_shape": shape, "conv": conv},
            "inference": inference or {},
            "run": {"threads": threads, **run},
        }
    )
    built = build_network(config.network)
    if not (folder / "raw.h5").exists():
        with h5py.File(folder / "raw.h5", "w") as file:
            file["raw"] = np.random.default_rng(0).integers(0, 255, extent).astype(np.uint8)
    request = Request(built.outputs[0], True, patch=PATCH, sources={"input": folder / "raw.h5"})
    weights = Weights(config, built, None, initial_parameters(built, 1))
    return Small(folder, weights, request)
