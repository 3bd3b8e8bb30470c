"""A trained run's network over a stack by PyTorch, block by block; reads and halos as znnpy's own.

`python scripts/peers/torch_predict.py RUN STACK OUTPUT --roi Z:Z,Y:Y,X:X --patch Z,Y,X --format NAME
--threads N [--compiled]`; without OUTPUT (`-`), times the last three of four patches and prints voxels/s
and the peak of the process's memory as JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from stopwatch import seconds

from peers.cases import Case
from peers.contestants import FORMATS, Torch
from znnpy.config.models import VolumeSection
from znnpy.data.config_volumes import open_scene
from znnpy.data.values.normalization import normalisation
from znnpy.geometry import fit
from znnpy.infer.blocks import Field, Region, region_of_interest, whole_field
from znnpy.infer.grid import Grid
from znnpy.infer.predict import Finish, VolumePrediction
from znnpy.network import training_losses
from znnpy.network.types import Triple
from znnpy.train.progress import Quiet
from znnpy.train.start import read_run


class TorchPatch:
    """PyTorch as what predicts one patch: `network`, `geometry`, `staged`, `run`."""

    def __init__(self, saved: Any, patch: Triple, options: argparse.Namespace) -> None:
        self.network = saved.network
        self.geometry = fit(saved.network, patch)
        case = Case("patch", saved.network, patch, "square", training=False)
        parameters = saved.checkpoint.parameters
        self.torch = Torch(case, parameters, options.format, compiled=options.compiled)
        (node,) = saved.network.inputs
        shape = (1, node.channels, *self.geometry.input_shapes[node.name])
        self._staged = {node.name: np.zeros(shape, np.float32)}

    def staged(self) -> Any:
        """Where the input (1, image, z, y, x) goes."""
        return self._staged

    def run(self) -> Any:
        """Output values (1, image, z, y, x)."""
        (node,) = self.network.outputs
        given = torch.from_numpy(next(iter(self._staged.values())))
        with torch.no_grad():
            found = self.torch.call(given.to(memory_format=self.torch.layout))
        return {node.name: found.numpy()}


def main() -> None:
    """Predict the region, or time one patch."""
    options = _options()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    saved = read_run(options.run, Quiet())
    data = saved.config.data.model_copy(update={"in_memory": False})
    node = saved.network.inputs[0].name
    section = VolumeSection.model_validate({"image": {node: str(options.stack)}})
    scene = open_scene(section, data, saved.network)
    corners = {name: scene.corner(volume) for name, volume in scene.images.items()}
    field = whole_field(saved.network, scene.images, corners, data.border == "mirror")
    norms = {n: normalisation(v, data.normalize) for n, v in scene.images.items()}
    model = TorchPatch(saved, options.patch, options)
    finish = Finish(
        training_losses(saved.config, saved.network)[saved.network.outputs[0].name].reading
    )
    prediction = VolumePrediction(model, scene, field, norms, finish, grid=Grid(options.patch))
    if str(options.output) == "-":
        print(json.dumps(_speed(prediction, options.patch)))
    else:
        _write(prediction, field, options)


def _speed(prediction: VolumePrediction, patch: Triple) -> dict[str, float]:
    times = []
    for number in range(4):
        region = Region((0, 0, number * patch[2]), (patch[0], patch[1], (number + 1) * patch[2]))
        times.append(seconds(prediction.region, region))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"voxels_per_s": float(np.prod(patch)) / sorted(times[1:])[1], "peak_bytes": peak}


def _write(prediction: VolumePrediction, field: Field, options: argparse.Namespace) -> None:
    region = region_of_interest(field, options.roi)
    images = next(iter(prediction._outputs.values()))
    with h5py.File(options.output, "w") as file:
        dataset = file.create_dataset("prediction", (images, *region.shape), "f4")
        for patch in prediction.grid.meeting(region):
            part = patch.within(region)
            (values,) = prediction.region(part).values()
            dataset[:, *part.slices(region.lower)] = values


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("stack", type=str)
    parser.add_argument("output", type=Path)
    parser.add_argument("--roi", type=_region)
    parser.add_argument("--patch", type=_triple, required=True)
    parser.add_argument("--format", choices=list(FORMATS), default="channels_last_3d")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compiled", action="store_true")
    return parser.parse_args()


def _triple(text: str) -> Triple:
    z, y, x = map(int, text.split(","))
    return z, y, x


def _region(text: str) -> Region:
    (z0, z1), (y0, y1), (x0, x1) = (map(int, part.split(":")) for part in text.split(","))
    return Region((z0, y0, x0), (z1, y1, x1))


if __name__ == "__main__":
    main()
