"""Small ONNX files, operator by operator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Node = tuple[Any, ...]
"""Operator, inputs, outputs (texts with spaces between), and attributes."""


def drawn(*shape: int, seed: int = 0) -> Any:
    return (np.random.default_rng((seed, *shape)).standard_normal(shape) / 3).astype(np.float32)


def model(
    nodes: Sequence[Node],
    weights: dict[str, Any] | None = None,
    shape: Sequence[Any] = (1, 2, 6, 8, 12),
    outputs: Sequence[str] = ("y",),
    opset: int = 18,
) -> Any:
    """A model of nodes, named after their operator and first output, with the input x."""
    made = []
    for kind, inputs, names, *more in nodes:
        given = [name if name != "-" else "" for name in inputs.split()]
        made.append(
            helper.make_node(
                kind,
                given,
                names.split(),
                name=f"/a/{names.split()[0]}/{kind}",
                **(more or [{}])[0],
            )
        )
    graph = helper.make_graph(
        made,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def written(path: Path, *args: Any, **more: Any) -> Path:
    onnx.save(model(*args, **more), path)
    return path


CONV = ("Conv", "x c.weight c.bias", "c", {"pads": [1] * 6})
WEIGHTS = {"c.weight": drawn(4, 2, 3, 3, 3), "c.bias": drawn(4), "d.weight": drawn(3, 4, 1, 1, 1)}
NET: tuple[Sequence[Node], dict[str, Any]] = (
    [
        CONV,
        ("BatchNormalization", "c n.weight n.bias n.mean n.var", "n"),
        ("Relu", "n", "r"),
        ("MaxPool", "r", "p", {"kernel_shape": [1, 2, 2], "strides": [1, 2, 2]}),
        ("Shape", "r", "s"),
        ("Resize", "p - - s", "u", {"mode": "linear"}),
        ("Concat", "u r", "k", {"axis": 1}),
        ("Pad", "k pads", "q"),
        ("Conv", "q e.weight", "e"),
        ("Sigmoid", "e", "g"),
        ("Mul", "e g", "m"),
        ("GlobalAveragePool", "m", "a"),
        ("Mul", "m a", "b"),
        ("Conv", "b d.weight", "y"),
    ],
    {
        **WEIGHTS, "e.weight": drawn(4, 8, 3, 1, 1), "pads": np.array([0, 0, 1, 0, 0, 0, 0, 1, 0, 0]),
        "n.weight": drawn(4), "n.bias": drawn(4), "n.mean": drawn(4), "n.var": abs(drawn(4)) + 1,
    },
)  # fmt: skip
