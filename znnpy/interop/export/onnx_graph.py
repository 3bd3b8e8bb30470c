"""A graph of ONNX as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from znnpy.interop.export.computation import Tensor


class Graph:
    """Nodes and constants so far, made by the library `onnx`, which is handed in."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node, named after its output, and return that."""
        made = self._onnx.helper.make_node(operator, inputs, [output], name=output, **attributes)
        self.nodes.append(made)
        return output

    def constant(self, name: str, array: Tensor) -> str:
        """Add a constant, floats as float32, and return its name."""
        plain = np.asarray(array, np.float32) if array.dtype.kind == "f" else array
        self.constants.append(self._onnx.numpy_helper.from_array(plain, name))
        return name

    def numbers(self, name: str, *values: int) -> str:
        """Add a constant of whole numbers and return its name."""
        return self.constant(name, np.array(values, np.int64))
