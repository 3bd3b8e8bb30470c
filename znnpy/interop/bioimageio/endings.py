"""What a package does after its net: sigmoid and softmax become the functions of outputs, others are named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from znnpy.interop.bioimageio.tensors import Tensor
from znnpy.interop.operators.described import Described
from znnpy.network import load_network

_FUNCTIONS = {"sigmoid": "logistic", "softmax": "softmax"}


def ended(
    found: Described, names: Sequence[str], outputs: Sequence[Tensor]
) -> tuple[Described, list[str]]:
    """Return the net with the first step after each output as its function, and a note for each other step."""
    section: dict[str, Any] = {**found.section, "nodes": dict(found.section["nodes"])}
    notes = []
    for name, output in zip(names, outputs, strict=True):
        steps = [step for step in output.steps if step.name != "ensure_dtype"]
        if steps and steps[0].name in _FUNCTIONS and _takes(section["nodes"][name]):
            function = _FUNCTIONS[steps.pop(0).name]
            section["nodes"][name] = {**section["nodes"][name], "function": function}
        notes += [f"{step.said.where}: is not done here" for step in steps]
    return replace(found, section=section, network=load_network(section)), notes


def _takes(node: Any) -> bool:
    """Return whether a node has no function yet, and may have one."""
    return bool(node["kind"] == "transfer" and node.get("function", "linear") == "linear")
