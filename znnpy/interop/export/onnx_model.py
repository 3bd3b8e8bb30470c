"""A computation as a model of ONNX, with the library `onnx` (extra `znnpy[onnx]`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from znnpy.data.extras import required
from znnpy.data.process_memory import readable
from znnpy.errors import ExportError
from znnpy.interop.export.computation import Computation
from znnpy.interop.export.formats import Write
from znnpy.interop.export.onnx_graph import Graph
from znnpy.interop.export.onnx_nodes import NODES
from znnpy.interop.export.trained import Trained, normalisation_words
from znnpy.layers.types import AXES

OPSET, IR = (
    20,
    9,
)  # of onnx 1.15 and ONNX Runtime 1.17: the first whose averages have taps that lie apart, and gelu
MOST = (1 << 31) - (1 << 24)  # bytes of weights; a file, which holds 2 GiB, has nodes as well


def onnx_files(trained: Trained) -> Sequence[Write]:
    """Return what writes the model, which `onnx.checker` has passed."""
    words = f"Images go in prepared: {normalisation_words(trained.saved.config.data)}."
    model = onnx_model(trained.computation(), f"{trained.title}. {words}", trained.facts())
    data = model.SerializeToString()
    return (lambda file: file.write(data),)


def onnx_model(computation: Computation, about: str, facts: Mapping[str, str]) -> Any:
    """Return an `onnx.ModelProto`, in float32; batch, z, y and x of its inputs are free.

    `about`, `facts`: its description and metadata. Raises ExportError for more weights than a file of ONNX holds.
    """
    onnx = required("onnx", "onnx", "onnx", "ONNX")
    held = sum(4 * tensor.size for tensor in computation.tensors.values())
    if held > MOST:
        raise ExportError(
            f"the weights take {readable(held)}, and a file of ONNX holds 2 GiB; take --format torch"
        )
    graph = Graph(onnx)
    for it in computation.operations:
        tensors = {what: computation.tensors[key] for what, key in it.tensors.items()}
        NODES[it.kind](graph, it, tensors)
    made = onnx.helper.make_graph(
        graph.nodes,
        "network",
        _values(onnx, computation.inputs),
        _values(onnx, computation.outputs),
        graph.constants,
    )
    model = onnx.helper.make_model(
        made,
        producer_name="znnpy",
        producer_version=facts.get("znnpy_version", ""),
        doc_string=about,
        ir_version=IR,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
    )
    onnx.helper.set_model_props(model, dict(facts))
    onnx.checker.check_model(model, full_check=True)
    return model


def _values(onnx: Any, named: Mapping[str, int]) -> list[Any]:
    return [
        onnx.helper.make_tensor_value_info(
            name,
            onnx.TensorProto.FLOAT,
            ["batch", channels, *(f"{name}_{axis}" for axis in AXES)],
        )
        for name, channels in named.items()
    ]
