"""A package of bioimage.io: a zip of rdf.yaml, weights for ONNX Runtime and PyTorch, and tensors to test them with."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from ruamel.yaml import YAML

from znnpy.geometry import Geometry
from znnpy.infer.config_model import patch_model
from znnpy.interop.export.bioimageio_description import Part, description, taken
from znnpy.interop.export.bioimageio_preparation import prepared, preprocessing
from znnpy.interop.export.computation import Computation
from znnpy.interop.export.formats import Write
from znnpy.interop.export.onnx_model import OPSET, onnx_files
from znnpy.interop.export.torch_files import module_of
from znnpy.interop.export.trained import Trained

_EARLIEST = (1980, 1, 1, 0, 0, 0)  # of a member: equal networks make equal packages
_README = """# {title}

{notes}

## Validation

Not validated: the test tensors are random.

Written by znnpy. Authors, licence and what it was trained on are to be added to `rdf.yaml` before it is published.
"""
Floats = NDArray[np.float32]


def package_files(trained: Trained) -> Sequence[Write]:
    """Return what writes the package; its test tensors are computed by this network's own engine."""
    sizes = taken(trained)
    # Tensors of a package are float32, and PyTorch does not mix.
    computation = _single(trained.computation())
    names = list(computation.inputs), list(computation.outputs)
    tensors = _tensors(trained, names, sizes.tested)
    onnx, module = onnx_files(trained), module_of(trained, computation)
    notes = "\n".join(f"- {note}" for note in trained.notes())
    data = {
        "README": ("README.md", _README.format(title=trained.title, notes=notes).encode()),
        "onnx": ("weights.onnx", _bytes(onnx[0])),
        "module": ("network.py", _bytes(module[0])),
        "weights": ("weights.pth", _bytes(module[1])),
        **{name: (f"test_{name}.npy", _npy(array)) for name, array in tensors.items()},
    }
    parts = {key: Part(name, sha256(found).hexdigest()) for key, (name, found) in data.items()}
    text = io.StringIO()
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump(description(trained, names, sizes, parts, OPSET), text)
    members = {"rdf.yaml": text.getvalue().encode(), **dict(data.values())}
    return (lambda file: _zip(file, members),)


def _single(computation: Computation) -> Computation:
    tensors = {
        name: array.astype(np.float32) if array.dtype.kind == "f" else array
        for name, array in computation.tensors.items()
    }
    return replace(computation, tensors=tensors)


def _bytes(write: Write) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def _npy(array: Floats) -> bytes:
    return _bytes(lambda file: np.save(file, array, allow_pickle=False))


def _zip(file: BinaryIO, members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, found in members.items():
            info = zipfile.ZipInfo(name, _EARLIEST)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, found)


def _tensors(
    trained: Trained, names: tuple[Sequence[str], Sequence[str]], sizes: Geometry
) -> dict[str, Floats]:
    """Return a random image for each input, by the name of the tensor, and what comes of them for each output."""
    saved, rng = trained.saved, np.random.default_rng(0)
    network, data = saved.weights.network, saved.config.data
    images, ready = dict[str, Floats](), dict[str, Floats]()
    for name, node in zip(names[0], network.inputs, strict=True):
        shape = (1, node.channels, *sizes.input_shapes[node.name])
        images[name] = rng.standard_normal(shape).astype(np.float32)
        ready[node.name] = prepared(images[name], preprocessing(data, node.channels))
    patch = next(iter(sizes.output_shapes.values()))
    with patch_model(saved.config, network, patch, saved.weights.plan) as model:
        model.set_parameters(saved.weights.parameters)
        found: Any = (model.forward if trained.logits else model.predict)(
            ready if len(ready) > 1 else next(iter(ready.values()))
        )
    outputs = found if isinstance(found, dict) else {network.outputs[0].name: found}
    made = zip(names[1], network.outputs, strict=True)
    return images | {name: outputs[node.name].astype(np.float32) for name, node in made}
