"""An ONNX file as plain values: its operators in order, with attributes, and constants that are read when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from znnpy.data.process_memory import readable
from znnpy.errors import ModelFileError, reason
from znnpy.interop.onnx.tensors import Array, array_of, text_of

MOST = (1 << 31) - 1  # bytes of a file: more are no protocol buffer
MOST_OPERATORS = 50_000
OLDEST = 11  # opset
_DOMAINS = ("", "ai.onnx")


@dataclass
class Operator:
    """One node of the graph; `where` names file, node and operator for errors. Attributes are taken by name."""

    kind: str
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Any]
    where: str
    taken: set[str] = field(default_factory=set)

    def attribute(self, name: str, usual: Any) -> Any:
        """Return an attribute of the type of what is usual; `usual` where there is none."""
        self.taken.add(name)
        found = self.attributes.get(name, usual)
        if usual is not None and type(found) is not type(usual):
            raise self.wrong(
                f"attribute {name} is {str(found)[:60]!r}, and must be of type {type(usual).__name__}"
            )
        return found

    def refuse_others(self) -> None:
        """Raise for attributes that nobody asked for: they would be ignored."""
        for name in self.attributes:
            if name not in self.taken:
                raise self.wrong(f"attribute {name} is not supported")

    def wrong(self, text: str) -> ModelFileError:
        """Return an error that names this operator."""
        return ModelFileError(f"{self.where}: {text}")


@dataclass(frozen=True)
class Graph:
    """A file's graph: operators in order, input names with sizes (None: any), outputs, constants, and its opset.

    `facts`: its metadata.
    """

    operators: Sequence[Operator]
    inputs: Mapping[str, Sequence[int | None]]
    outputs: Sequence[str]
    constants: Mapping[str, Callable[[], Array]]
    opset: int
    facts: Mapping[str, str] = field(default_factory=dict)


def read_graph(path: Path) -> Graph:
    """Return the graph of a file; ModelFileError for damaged files, and those of other domains or versions."""
    onnx = _library()
    try:
        size = path.stat().st_size
        if size > MOST:
            raise ModelFileError(f"{path} has {readable(size)}; at most {readable(MOST)} are read")
        model = onnx.ModelProto()
        model.ParseFromString(path.read_bytes())
    except (OSError, ValueError, MemoryError) as error:
        raise ModelFileError(f"{path} cannot be read: {reason(error)[:200]}") from error
    except Exception as error:  # protobuf's own, whose module depends on its version
        raise ModelFileError(
            f"{path} is no ONNX file, or damaged: {reason(error)[:200]}"
        ) from error
    if not model.graph.node:
        raise ModelFileError(f"{path} is no ONNX file, or has no operators")
    if model.functions:
        raise ModelFileError(
            f"{path}: functions of its own ({text_of(model.functions[0].name)[:80]}) are not supported"
        )
    if len(model.graph.node) > MOST_OPERATORS:
        raise ModelFileError(
            f"{path} has {len(model.graph.node):,} operators; at most {MOST_OPERATORS:,} are read"
        )
    return _graph(path, model, onnx)


def _library() -> Any:
    try:
        return import_module("onnx")
    except ImportError as error:
        raise ModelFileError(
            'ONNX files need the package onnx, which is not installed: pip install "znnpy[onnx]"'
        ) from error


def _graph(path: Path, model: Any, onnx: Any) -> Graph:
    versions = [entry.version for entry in model.opset_import if text_of(entry.domain) in _DOMAINS]
    opset, newest = (versions or [0])[0], onnx.defs.onnx_opset_version()
    if not OLDEST <= opset <= newest:
        raise ModelFileError(f"{path}: opset {opset} is not supported: {OLDEST} to {newest} are")
    graph, folder = model.graph, path.parent
    if graph.sparse_initializer:
        raise ModelFileError(f"{path}: sparse tensors are not supported")
    constants = {
        name: partial(array_of, tensor, folder, f"{path}: {name[:80]}")
        for name, tensor in ((text_of(it.name), it) for it in graph.initializer)
    }
    operators = [_operator(path, node, number) for number, node in enumerate(graph.node)]
    inputs = {
        name: _sizes(path, name, value)
        for name, value in ((text_of(it.name), it) for it in graph.input)
        if name not in constants
    }
    outputs = [text_of(value.name) for value in graph.output]
    facts = {text_of(it.key): text_of(it.value) for it in model.metadata_props}
    return Graph(operators, inputs, outputs, constants, opset, facts)


def _operator(path: Path, node: Any, number: int) -> Operator:
    kind, domain = text_of(node.op_type), text_of(node.domain)
    inputs, outputs = (
        [text_of(name) for name in node.input],
        [text_of(name) for name in node.output],
    )
    name = text_of(node.name) or (outputs[0] if outputs else f"node {number}")
    where = f"{path}: {kind[:40]} {name[:120]}"
    if domain not in _DOMAINS:
        raise ModelFileError(f"{where}: operators of {domain[:60]} are not supported")
    attributes = {text_of(a.name): _attribute(a, path.parent, where) for a in node.attribute}
    return Operator(kind, name, inputs, outputs, attributes, where)


def _attribute(attribute: Any, folder: Path, where: str) -> Any:
    """Return an attribute as number, text, list or array; what is another (a subgraph) as None."""
    match attribute.type:
        case 1:
            return attribute.f
        case 2:
            return attribute.i
        case 3:
            return text_of(attribute.s)
        case 4:
            return array_of(attribute.t, folder, f"{where}: {text_of(attribute.name)[:40]}")
        case 6:
            return list(attribute.floats)
        case 7:
            return list(attribute.ints)
    return None


def _sizes(path: Path, name: str, value: Any) -> list[int | None]:
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        raise ModelFileError(f"{path}: input {name[:80]} has no shape")
    if kind.elem_type not in (1, 10, 11, 16):
        raise ModelFileError(f"{path}: input {name[:80]} holds no floating-point numbers")
    found = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
    if len(found) not in (4, 5) or any(n is not None and not 1 <= n <= 1 << 20 for n in found):
        raise ModelFileError(
            f"{path}: input {name[:80]} has shape {found[:9]}; (batch, channels, z, y, x), or without z, is read"
        )
    return found
