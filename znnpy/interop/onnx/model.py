"""An ONNX file as a config and the weights of a run."""

from __future__ import annotations

from pathlib import Path

from znnpy.errors import ModelFileError
from znnpy.geometry.shape_inference import smallest
from znnpy.interop.assembled import assembled
from znnpy.interop.model import ImportedModel
from znnpy.interop.onnx.file import read_graph
from znnpy.interop.onnx.graph import network_of
from znnpy.interop.onnx.own_file import OwnFile, own_file
from znnpy.interop.operators.described import Described
from znnpy.interop.operators.training import target_for, training_keys

SUFFIX = ".onnx"
NORMALIZATION = (
    "normalisation of the input is not part of the file: data.normalize is none, set it if the net expects "
    "another"
)
OWN = "znnpy export wrote this file: images are prepared, and windows as large, as in its run"
RESIZED = (
    "znnpy export wrote this file: images are prepared as in its run; its windows of {} voxels (z, y, x) do not fit "
    "the sizes that resizes were read with, and become {}"
)


def is_model(path: Path) -> bool:
    """Return whether a path is an ONNX file by its name."""
    return path.suffix.lower() == SUFFIX and path.is_file()


def read_model(path: Path) -> ImportedModel:
    """Return the model of a file; all of its weights are read."""
    graph = read_graph(path)
    title = f"{path.name}: ONNX, opset {graph.opset}"
    try:
        found = network_of(graph, str(path))
        title += f", {len(found.network.nodes)} nodes"
        if (own := own_file(graph.facts)) is not None:
            return _own(title, found, own)
        (sizes,) = graph.inputs.values()
        training = training_keys(found, fixed=all(n is not None for n in sizes[2:]))
    except ModelFileError as error:
        text = str(error)
        raise ModelFileError(text if str(path) in text else f"{path}: {text}") from error
    config = {
        "network": dict(found.section),
        "data": {"normalize": "none", "target": target_for(found.network)},
        "training": training,
    }
    return ImportedModel(
        title, config, {"weights": lambda: found.parameters}, [NORMALIZATION, *found.notes]
    )


def _own(title: str, found: Described, own: OwnFile) -> ImportedModel:
    # A resize by voxels more is read as the ratio that it has at one size, and does not fit others.
    window = smallest(found.network, own.window)
    note = OWN if window == own.window else RESIZED.format(list(own.window), list(window))
    learned = own.learned.training(found.network)
    return assembled(title, found, own.data, window=window, training=learned, notes=[note])
