"""A module of PyTorch as `torch.export` writes its operators down, and the net that they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self

import numpy as np

from znnpy.errors import ArgumentError, ModelFileError
from znnpy.interop.operators.described import Described, described
from znnpy.interop.operators.sketch import Bench, Floats, Sketch
from znnpy.interop.operators.value import Value
from znnpy.interop.pytorch.attention import refuse_attention
from znnpy.interop.pytorch.calls import Calls
from znnpy.interop.pytorch.operators import OPERATORS
from znnpy.interop.turned_round import MARK
from znnpy.network.types import Triple


@dataclass(frozen=True)
class Program:
    """The operators of a module in prediction; `tensors` are its parameters, buffers and constants by name.

    `inputs`: by the name of a node of `graph`, the name of its tensor and whether that learns: a parameter that wants a
    gradient; None for the image.
    """

    graph: Any
    inputs: Mapping[str, tuple[str, bool] | None]
    tensors: Mapping[str, Any]

    @classmethod
    def of(cls, module: Any, example: Any) -> Self:
        """Return the program of a module for an image as large as this tensor."""
        torch = library()
        inputs = tuple(example) if isinstance(example, tuple | list) else (example,)
        if not isinstance(module, torch.nn.Module):
            raise ArgumentError(f"a torch.nn.Module is needed; found {type(module).__name__}")
        if (
            len(inputs) != 1
            or not isinstance(inputs[0], torch.Tensor)
            or inputs[0].dim() not in (4, 5)
        ):
            raise ArgumentError(
                "the example must be one tensor (batch, channels, z, y, x), or without z"
            )
        refuse_attention(torch, module)
        found = _exported(torch, module, inputs)
        tensors = {**found.state_dict, **found.constants}
        said = {
            spec.arg.name: None
            if spec.kind.name == "USER_INPUT"
            else (spec.target, spec.kind.name == "PARAMETER" and tensors[spec.target].requires_grad)
            for spec in found.graph_signature.input_specs
        }
        return cls(found.graph, said, tensors)

    def still(self) -> set[str]:
        """Return the names of the net's parameters of which no part comes from a tensor that learns."""
        learned = {said[0] for said in self.inputs.values() if said is not None and said[1]}

        def with_all(number: float) -> Mapping[str, Floats]:
            filled = {
                name: it.new_full(it.shape, number) if name in learned else it
                for name, it in self.tensors.items()
            }
            return self.described(filled).parameters

        # What is calculated, as a shift that is subtracted, is no mark, but another number for another mark.
        one, other = with_all(MARK), with_all(MARK - 1)
        return {name for name, array in one.items() if np.array_equal(array, other[name])}

    @property
    def read(self) -> list[str]:
        """The names of the tensors that some operator reads."""
        nodes = [it for it in self.graph.nodes if it.op == "placeholder" and it.users]
        return [said[0] for it in nodes if (said := self.inputs[it.name]) is not None]

    def described(self, tensors: Mapping[str, Any]) -> Described:
        """Return the net as nodes, edges and parameters, with these tensors as those of the module."""
        sketch = Sketch()
        calls = Calls(sketch, library(), OPERATORS)
        for node in self.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, sketch, calls, tensors)
            elif node.op == "call_function":
                calls.add(node)
            elif node.op == "output":
                return described(sketch, _outputs(calls, node.args[0]))
        raise ModelFileError("the module has no output")

    def _placeholder(
        self, node: Any, sketch: Sketch, calls: Calls, tensors: Mapping[str, Any]
    ) -> None:
        """Tell what a parameter, a buffer or the input is; an input that is not read is none."""
        said = self.inputs[node.name]
        if said is not None:
            target, learned = said
            calls.tensors[node.name] = tensors[target]
            calls.targets[node.name] = target
            if learned:
                calls.learned.add(target)
            return
        seen = tuple(int(n) for n in node.meta["val"].shape)
        z, y, x = (1,) * (5 - len(seen)) + seen[2:]
        size: Triple = (z, y, x)
        name = sketch.name("input")
        sketch.nodes[name] = Bench("input", seen[1], size)
        calls.values[node.name] = Value(name, seen[1], size, seen)


def library() -> Any:
    """Return PyTorch; ModelFileError without it."""
    try:
        return import_module("torch")
    except ImportError as error:
        raise ModelFileError(
            "from_torch needs PyTorch, which is not installed: pip install torch"
        ) from error


def _exported(torch: Any, module: Any, inputs: tuple[Any, ...]) -> Any:
    """Return the program of a module in prediction, without operators that write in place."""
    was = {name: part.training for name, part in module.named_modules()}
    module.eval()
    try:
        with torch.no_grad():
            return torch.export.export(module, inputs).run_decompositions({})
    except Exception as error:  # whatever a module's own code raises
        text = " ".join(str(error).split())[:300]
        raise ModelFileError(f"torch.export fails on {type(module).__name__}: {text}") from error
    finally:
        for name, part in module.named_modules():
            part.training = was[name]


def _outputs(calls: Calls, given: Any) -> dict[str, Value]:
    nodes = [node for node in given if node is not None]
    found = dict[str, Value]()
    for number, node in enumerate(nodes):
        value = calls.values.get(node.name)
        if not isinstance(value, Value):
            raise ModelFileError(f"output {number} of the module is no feature map of its input")
        found[f"output{number or ''}"] = value
    return found
