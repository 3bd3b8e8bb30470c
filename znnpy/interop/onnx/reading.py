"""`Reading`: what is known of each tensor of a graph while its operators are walked, a constant or a feature map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from znnpy.interop.onnx.file import Operator
from znnpy.interop.onnx.folding import integers
from znnpy.interop.onnx.tensors import Array
from znnpy.interop.operators.sketch import Floats, Sketch
from znnpy.interop.operators.value import Value
from znnpy.interop.operators.windows import triple
from znnpy.network.types import Triple


@dataclass
class Reading:
    """Tensors by name. `values`: feature maps; `stored`: the file's constants; `made`: those that were computed.
    `read`: how often each tensor is read, as an output too.

    `origin`: of a constant that is another one under a new name, the first name.
    `readers`: the operator that read filters first.
    """

    sketch: Sketch
    stored: Mapping[str, Callable[[], Array]]
    opset: int
    read: Mapping[str, int]
    values: dict[str, Value] = field(default_factory=dict)
    made: dict[str, Array] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)

    def known(self, name: str) -> bool:
        """Return whether a tensor is a feature map or a constant."""
        return name in self.values or self.constant(name)

    def constant(self, name: str) -> bool:
        """Return whether a tensor is a constant."""
        return name in self.made or name in self.stored

    def array(self, op: Operator, place: int, what: str) -> Array:
        """Return a constant that an operator reads."""
        name = op.inputs[place] if place < len(op.inputs) else ""
        if name in self.made:
            return self.made[name]
        if name not in self.stored:
            raise op.wrong(f"{what} must be a constant")
        found = self.made[name] = self.stored[name]()
        return found

    def given(self, op: Operator, place: int) -> bool:
        """Return whether an operator has an input there."""
        return place < len(op.inputs) and op.inputs[place] != ""

    def floats(self, op: Operator, place: int, what: str) -> Floats:
        """Return weights that an operator reads, as float32."""
        found = self.array(op, place, what)
        if found.dtype.kind != "f":
            raise op.wrong(f"{what} holds {found.dtype}, no floating-point numbers")
        return found.astype(np.float32, copy=False)

    def filters(self, op: Operator, what: str) -> Floats:
        """Return the filters that an operator reads; used again they become filters of their own."""
        name = op.inputs[1] if len(op.inputs) > 1 else ""
        first = self.readers.setdefault(self.origin.get(name, name), op.name)
        if first != op.name:
            self.sketch.note("filters that an earlier operator has, too, learn apart")
        return self.floats(op, 1, what)

    def maybe(self, op: Operator, place: int, what: str) -> Floats | None:
        """Return weights, or None where the operator has none."""
        return self.floats(op, place, what) if self.given(op, place) else None

    def numbers(self, op: Operator, place: int, what: str) -> list[int]:
        """Return a few whole numbers that an operator reads."""
        return integers(op, self.array(op, place, what), what)

    def any_value(self, op: Operator, place: int = 0) -> Value:
        """Return a feature map that an operator reads, which may be transposed."""
        name = op.inputs[place] if place < len(op.inputs) else ""
        if name not in self.values:
            raise op.wrong(f"input {place} must be a feature map, and is none")
        return self.values[name]

    def value(self, op: Operator, place: int = 0) -> Value:
        """Return a feature map that an operator reads."""
        found = self.any_value(op, place)
        if found.turned is not None:
            raise op.wrong("reads a tensor that was transposed, which is not supported")
        return found

    def triple(self, op: Operator, x: Value, name: str, fill: int = 1) -> Triple:
        """Return an attribute of one number for each axis of space."""
        given = op.attribute(name, [])
        return triple(self.sketch, given or [fill], x.dimensions, fill, f"attribute {name}")

    def named(self, op: Operator, place: int = 1) -> str:
        """Return what the filters at an input are called, without `.weight`; the operator's name if they have none."""
        name = op.inputs[place] if place < len(op.inputs) else ""
        name = self.origin.get(name, name)
        known = name.endswith((".weight", "_weight", ".kernel"))
        return name.rpartition("." if "." in name else "_")[0] if known else plain_name(op.name)

    def learned(self, op: Operator, place: int) -> bool:
        """Return whether a constant is named as weights are."""
        name = op.inputs[place] if place < len(op.inputs) else ""
        return self.origin.get(name, name).endswith(
            (".weight", ".bias", ".scale", ".gamma", ".beta")
        )


def plain_name(name: str) -> str:
    """Return an operator's name in dots: `/encoder/block.0/conv/Conv` as `encoder.block.0.conv`."""
    parts = [part for part in name.split("/") if part]
    if len(parts) > 1:
        parts = parts[:-1] if parts[-1].split("_")[0].isalpha() else parts
    kept = [
        part
        for n, part in enumerate(parts)
        if n + 1 == len(parts) or not _begins(parts[n + 1], part)
    ]
    return ".".join(kept) or "node"


def _begins(longer: str, shorter: str) -> bool:
    return longer.startswith(f"{shorter}.")


Translation = Callable[[Reading, Operator, str], Any]


def refuse_extra(reading: Reading, op: Operator) -> None:
    """Raise for outputs beyond the first that something reads, such as masks and indices."""
    for name in op.outputs[1:]:
        if name in reading.read:
            raise op.wrong(f"output {name[:80]} is not supported")
