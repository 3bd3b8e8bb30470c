"""Dense prediction of whole volumes, block by block, each with its real neighbours as halo."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from znnpy.data.normalise import Mode, normalisation
from znnpy.data.outputs import OutputSpec, open_output
from znnpy.data.scene import Scene
from znnpy.data.volume import Triple, mirror_read
from znnpy.errors import VolumeError
from znnpy.geometry.fit import Geometry
from znnpy.infer.blocks import Field, input_region, starts, triple
from znnpy.network.types import Network

Floats = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]
"""Called with (blocks done, blocks in all)."""


class Predictor(Protocol):
    """What prediction needs of a model made for one block shape; `znnpy.Model` in practice."""

    @property
    def network(self) -> Network:
        """Its network."""

    @property
    def geometry(self) -> Geometry:
        """Its shapes for one block."""

    def forward(self, x: Any) -> Any:
        """Output values (1, image, z, y, x) of one block; dicts for several inputs or outputs."""


@dataclass(frozen=True)
class Block:
    """Output values of one block, (image, z, y, x) by output node, first voxel at `start`."""

    start: Triple
    values: Mapping[str, Floats]


class VolumePrediction:
    """Predicts the blocks of one field of a scene with one model.

    Images are normalised per volume by `normalise`. One caller at a time; `scene` and `model` stay
    the caller's.
    """

    def __init__(self, model: Predictor, scene: Scene, field: Field, normalise: Mode) -> None:
        self.field = field
        self.block: Triple = next(iter(model.geometry.output_shapes.values()))
        self._model, self._scene = model, scene
        self._names = [node.name for node in model.network.inputs]
        self._norms = {n: normalisation(scene.images[n], normalise) for n in self._names}

    @property
    def starts(self) -> list[Triple]:
        """First voxels of all blocks."""
        return list(starts(self.field.shape, self.block))

    def block_at(self, start: Triple) -> Block:
        """Predict one block."""
        inputs = {name: self._read(name, start) for name in self._names}
        given = inputs if len(inputs) > 1 else inputs[self._names[0]]
        found = self._model.forward(given)
        outputs = [node.name for node in self._model.network.outputs]
        by_node = found if isinstance(found, dict) else {outputs[0]: found}
        return Block(start, {name: values[0] for name, values in by_node.items()})

    def cut_block(self, lower: Triple, upper: Triple, node: str) -> Floats:
        """One output node's values in a region of at most a block."""
        pairs = zip(lower, self.field.shape, self.block, strict=True)
        start = triple(min(low, size - step) for low, size, step in pairs)
        z, y, x = (slice(a - s, b - s) for a, b, s in zip(lower, upper, start, strict=True))
        return self.block_at(start).values[node][:, z, y, x]

    def blocks(self, progress: Progress | None = None) -> Iterator[Block]:
        """Predict all blocks in order."""
        places = self.starts
        for done, start in enumerate(places, start=1):
            yield self.block_at(start)
            if progress:
                progress(done, len(places))

    def whole(self, progress: Progress | None = None) -> dict[str, Floats]:
        """All output values in memory, (image, z, y, x) by output node."""
        whole = {
            node.name: np.empty((node.images, *self.field.shape), np.float32)
            for node in self._model.network.outputs
        }
        for block in self.blocks(progress):
            for name, values in block.values.items():
                z, y, x = (slice(a, a + n) for a, n in zip(block.start, self.block, strict=True))
                whole[name][:, z, y, x] = values
        return whole

    def place(self) -> dict[str, list[float]]:
        """Attributes `resolution` and `offset` (z, y, x, nanometres) of what is predicted."""
        first = self._scene.reference
        voxel = first.resolution
        steps = zip(voxel, self.field.stride, strict=True)
        corner = zip(first.offset, voxel, self.field.first, strict=True)
        return {
            "resolution": [size * step for size, step in steps],
            "offset": [start + size * voxels for start, size, voxels in corner],
        }

    def _read(self, name: str, start: Triple) -> Floats:
        region = input_region(self.field, self._model.geometry, name, start)
        raw = mirror_read(self._scene.images[name], region.lower, region.upper)
        return self._norms[name].apply(raw)[None]


def predict_to_file(
    prediction: VolumePrediction,
    node: str,
    images: int,
    path: Path,
    dataset: str,
    finish: Callable[[Floats], npt.NDArray[Any]],
    dtype: npt.DTypeLike = np.float32,
    attributes: Mapping[str, Any] | None = None,
    key: str = "",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> None:
    """Write one output node's prediction as an HDF5 dataset (image, z, y, x) of a new file.

    `finish` turns a block's values into what is written. Blocks go to `path` + ".partial", which
    is renamed at the end; a killed prediction with the same `key` goes on where it stopped. An
    existing `path` is refused unless `overwrite`. Raises VolumeError, also for a full disk.
    """
    shape = (images, *prediction.field.shape)
    spec = OutputSpec(shape, np.dtype(dtype), prediction.block, attributes or {}, {"key": key})
    try:
        with open_output(path, dataset, spec, overwrite) as writer:
            places = spec.blocks()
            for number, (lower, upper) in enumerate(places, start=1):
                if (lower, upper) not in writer.done:
                    writer.write(lower, finish(prediction.cut_block(lower, upper, node)))
                if progress:
                    progress(number, len(places))
            writer.finish()
    except OSError as error:
        raise VolumeError(f"{path} cannot be written: {error.strerror or error}") from error
