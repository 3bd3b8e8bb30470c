"""Refuses transformers by their first layer of attention, before any operator of a file is taken."""

from __future__ import annotations

from znnpy.interop.onnx.file import Graph, Operator

_KINDS = ("Attention", "MultiHeadAttention")
_PASSING = ("Dropout", "Identity", "Cast", "Reshape")


def refuse_attention(graph: Graph) -> None:
    """Raise ModelFileError for an operator of attention, or a product of a softmax and what is no weight."""
    shares = dict[str, Operator]()
    for op in graph.operators:
        attends = op.kind in _KINDS
        if op.kind == "Softmax":
            shares[op.outputs[0]] = op
        elif op.kind in _PASSING and op.inputs and op.inputs[0] in shares:
            shares[op.outputs[0]] = shares[op.inputs[0]]
        elif op.kind in ("MatMul", "Einsum"):
            weights = any(name in graph.constants for name in op.inputs)
            found = [shares[name] for name in op.inputs if name in shares]
            op, attends = (found[0], True) if found and not weights else (op, False)
        if attends:
            raise op.wrong("is of attention, which is not supported; networks of convolutions are")
