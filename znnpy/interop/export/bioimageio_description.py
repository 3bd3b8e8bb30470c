"""What a bioimage.io package (rdf.yaml, format 0.5) says of a network: tensors, their sizes, and weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from znnpy.errors import ShapeError
from znnpy.geometry import Geometry, fit, fit_input
from znnpy.geometry.receptive_field import lattice_of
from znnpy.geometry.shape_inference import smallest
from znnpy.interop.export.bioimageio_preparation import Said, preprocessing
from znnpy.interop.export.trained import Trained, normalisation_words
from znnpy.layers.types import AXES
from znnpy.network.patch_dependence import depends_on_patch
from znnpy.network.types import Network, Node, Triple

FORMAT = "0.5.12"
TORCH = "2.0"  # the first PyTorch whose torch.load has weights_only as the written module uses it


@dataclass(frozen=True)
class Part:
    """A file of the package, as rdf.yaml names it."""

    source: str
    sha256: str

    def said(self) -> Said:
        """Return the entry."""
        return {"source": self.source, "sha256": self.sha256}


def description(
    trained: Trained,
    names: tuple[Sequence[str], Sequence[str]],
    sizes: Taken,
    parts: Mapping[str, Part],
    opset: int,
) -> Said:
    """Return rdf.yaml as plain values. `names`: of input and output tensors; `sizes`: that it takes.

    `parts`: README, onnx, weights, module, and each tensor's test values by its name.
    """
    network, data = trained.saved.weights.network, trained.saved.config.data
    inputs = zip(names[0], network.inputs, strict=True)
    outputs = zip(names[1], network.outputs, strict=True)
    return {
        "type": "model",
        "format_version": FORMAT,
        "name": re.sub(r"[^A-Za-z0-9 _()-]", " ", trained.title)[:128],
        "description": f"{trained.title}. Images go in prepared: {normalisation_words(data)}.",
        "documentation": parts["README"].said(),
        "tags": ["znnpy", "3d"],
        "config": {"znnpy": {**trained.learned(), "window": list(_window(trained))}},
        "inputs": [
            {
                "id": name,
                "axes": _axes(node, _input_sizes(node, sizes, names[0][0], network)),
                "data": {"type": "float32"},
                "preprocessing": preprocessing(data, node.channels),
                "test_tensor": parts[name].said(),
            }
            for name, node in inputs
        ],
        "outputs": [
            {
                "id": name,
                "axes": _axes(node, _output_sizes(node, sizes, names[0][0], network)),
                "data": {"type": "float32"},
                "test_tensor": parts[name].said(),
            }
            for name, node in outputs
        ],
        "weights": {
            "onnx": {
                **parts["onnx"].said(),
                "parent": "pytorch_state_dict",
                "opset_version": opset,
            },
            "pytorch_state_dict": {
                **parts["weights"].said(),
                "architecture": {**parts["module"].said(), "callable": "Net"},
                "pytorch_version": TORCH,
            },
        },
    }


@dataclass(frozen=True)
class Taken:
    """Sizes that a package takes: `least`, larger ones by whole periods if it `grows`, and those of the `tested`."""

    least: Geometry
    tested: Geometry
    grows: bool


def taken(trained: Trained) -> Taken:
    """Return the sizes of a package: the least is the run's patch, where values depend on that, else the network's own.

    Tests are of the run's patch, or of two periods more than the least. Nothing but the run's patch is taken where
    the format cannot say sizes: an output's is the input's by its stride, without a rest, plus a number.
    """
    network, run = trained.saved.weights.network, trained.geometry
    dependent = depends_on_patch(network)
    least = run if dependent else fit(network, smallest(network))
    period = lattice_of(network).period
    larger = {
        name: (z + 2 * period[0], y + 2 * period[1], x + 2 * period[2])
        for name, (z, y, x) in least.input_shapes.items()
    }
    try:
        more = fit_input(network, larger)
    except ShapeError:
        return Taken(run, run, False)
    if not _divides(network, least):
        return Taken(run, run, False)
    return Taken(least, run if dependent else more, True)


def _window(trained: Trained) -> Triple:
    """Return the voxels of the run's windows, those of its finest output."""
    return max(trained.geometry.output_shapes.values(), key=prod)


def _divides(network: Network, sizes: Geometry) -> bool:
    """Return whether the first input's size is a multiple of all outputs' strides."""
    leader = sizes.input_shapes[network.inputs[0].name]
    return all(
        size % step == 0
        for name in sizes.output_shapes
        for size, step in zip(leader, sizes.output_stride(name), strict=True)
    )


def _axes(node: Node, sizes: Sequence[Said]) -> list[Said]:
    names = [f"channel{number}" for number in range(node.channels)]
    space = [{"type": "space", "id": axis, **size} for axis, size in zip(AXES, sizes, strict=True)]
    return [{"type": "batch"}, {"type": "channel", "id": "channel", "channel_names": names}, *space]


def _input_sizes(node: Node, sizes: Taken, first: str, network: Network) -> list[Said]:
    shapes, leader = sizes.least.input_shapes, network.inputs[0]
    own = shapes[node.name]
    if not sizes.grows:
        return [{"size": size} for size in own]
    if node == leader:
        period = lattice_of(network).period
        return [{"size": {"min": n, "step": step}} for n, step in zip(own, period, strict=True)]
    return [
        {"size": {"tensor_id": first, "axis_id": axis, "offset": n - of}}
        for axis, n, of in zip(AXES, own, shapes[leader.name], strict=True)
    ]


def _output_sizes(node: Node, sizes: Taken, first: str, network: Network) -> list[Said]:
    """Return sizes as they follow from the first input's: divided by the stride, and an offset."""
    own, stride = sizes.least.output_shapes[node.name], sizes.least.output_stride(node.name)
    leader = sizes.least.input_shapes[network.inputs[0].name]
    along = zip(AXES, own, leader, stride, strict=True)
    return [
        {
            "size": {"tensor_id": first, "axis_id": axis, "offset": n - of // step}
            if sizes.grows
            else n,
            "scale": float(step),
        }
        for axis, n, of, step in along
    ]
