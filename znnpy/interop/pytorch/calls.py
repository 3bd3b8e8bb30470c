"""`Calls`: the calls of an exported program, each with its arguments by the names of PyTorch's own schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from znnpy.errors import ModelFileError
from znnpy.interop.operators.sketch import Floats, Sketch
from znnpy.interop.operators.value import Value
from znnpy.interop.operators.windows import triple
from znnpy.network.types import Triple

Found = Value | Sequence[Value]


class Calls:
    """What is known of each tensor of a program: `values`, feature maps; `tensors`, parameters and constants.

    `targets`: what tensors are called in the module; `learned`: those targets that are parameters and learn.
    """

    def __init__(self, sketch: Sketch, torch: Any, operators: Mapping[str, Translation]) -> None:
        self.sketch, self.torch, self.operators = sketch, torch, operators
        self.values: dict[str, Found] = {}
        self.tensors: dict[str, Any] = {}
        self.targets: dict[str, str] = {}
        self.learned: set[str] = set()
        self.readers: dict[str, str] = {}

    def add(self, node: Any) -> None:
        """Add the node that a call makes to the sketch; raise ModelFileError where it is not supported."""
        if not node.users:  # assertions, and what nothing reads
            return
        call = Call(self, node)
        self.sketch.at = call.where
        if call.kind == "getitem":
            several, place = self.values.get(node.args[0].name), node.args[1]
            found = several[place] if isinstance(several, list) and place < len(several) else None
            if found is None:
                raise call.wrong(f"output {place} is not supported")
            self.values[node.name] = found
            return
        if not any(argument.name in self.values for argument in node.all_input_nodes):
            self._reshape(call, node)
            return
        if call.kind not in self.operators:
            raise call.wrong("is not supported")
        found = self.operators[call.kind](call, call.name)
        for value, wanted in zip(*self._shapes(found, node), strict=False):
            if value.shape != wanted:  # what is not understood must not pass
                raise call.wrong(f"makes a tensor {wanted} that would be {value.shape} here")
        self.values[node.name] = found

    def _reshape(self, call: Call, node: Any) -> None:
        """Let a parameter in another shape be a parameter; other operators of constants are not supported."""
        given = getattr(node.args[0], "name", "") if node.args else ""
        if (
            call.kind not in ("view", "reshape", "unsqueeze", "squeeze", "flatten")
            or given not in self.tensors
        ):
            raise call.wrong("of constants is not supported")
        self.tensors[node.name] = self.tensors[given].reshape(tuple(node.meta["val"].shape))
        self.targets[node.name] = self.targets[given]

    @staticmethod
    def _shapes(found: Found, node: Any) -> tuple[Sequence[Value], list[tuple[int, ...]]]:
        made = node.meta["val"]
        values = [found] if isinstance(found, Value) else found
        tensors = made if isinstance(made, tuple | list) else [made]
        return values, [
            tuple(int(n) for n in tensor.shape) for tensor in tensors if tensor is not None
        ]


class Call:
    """One call: `kind` is the operator's name in PyTorch, `name` what it is called here, `where` both for errors."""

    def __init__(self, calls: Calls, node: Any) -> None:
        self.calls, self.node, self.sketch = calls, node, calls.sketch
        target = node.target
        self.kind = getattr(target, "__name__", str(target)).split(".")[0]
        modules = list((node.meta.get("nn_module_stack") or {}).values())
        path, kind = modules[-1] if modules else ("", "")
        leaf = path and str(kind).startswith("torch.nn.modules.")
        self.name = path if leaf else ".".join(filter(None, (path, node.name)))
        self.where = f"{self.kind} {node.name}" + (f" in {path}" if path else "")
        self.arguments = _bound(target, node)

    def wrong(self, text: str) -> ModelFileError:
        """Return an error that names this call."""
        return ModelFileError(f"{self.where}: {text}")

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def value(self, name: str = "input") -> Value:
        """Return the feature map that an argument is."""
        found = self.any_value(name)
        if found.turned is not None:
            raise self.wrong("reads a tensor that was transposed, which is not supported")
        return found

    def any_value(self, name: str = "input") -> Value:
        """Return the feature map that an argument is, which may be transposed."""
        found = self.calls.values.get(getattr(self.arguments[name], "name", ""))
        if not isinstance(found, Value):
            raise self.wrong(f"argument {name} must be a feature map, and is none")
        return found

    def is_value(self, name: str) -> bool:
        """Return whether an argument is a feature map."""
        return getattr(self.arguments[name], "name", None) in self.calls.values

    def floats(self, name: str) -> Floats | None:
        """Return the parameter, buffer or number that an argument is; None where there is none."""
        given = self.arguments.get(name)
        if given is None:
            return None
        if isinstance(given, int | float):
            return np.array([given], np.float32)
        key = getattr(given, "name", "")
        tensor = self.calls.tensors.get(key)
        if tensor is None:
            raise self.wrong(f"argument {name} must be a parameter")
        if not tensor.is_floating_point():
            raise self.wrong(f"argument {name} holds {tensor.dtype}, no floating-point numbers")
        target = self.calls.targets[key]
        first = self.calls.readers.setdefault(target, self.node.name)
        if first != self.node.name and target in self.calls.learned:
            raise self.wrong(f"{target} is used twice: shared parameters are not supported")
        found: Floats = tensor.detach().cpu().float().numpy().copy()
        return found

    def learns(self, name: str) -> bool:
        """Return whether an argument is a parameter that learns."""
        key = getattr(self.arguments[name], "name", "")
        return self.calls.targets.get(key) in self.calls.learned

    def filters(self, name: str = "weight") -> tuple[Floats, str]:
        """Return filters, and what they are called."""
        found = self.floats(name)
        if found is None:
            raise self.wrong(f"argument {name} must be a parameter")
        target = self.calls.targets[self.arguments[name].name]
        return found, target.removesuffix(".weight") or self.name

    def triple(self, name: str, x: Value, fill: int = 1) -> Triple:
        """Return an argument of one number for each axis of space."""
        given = self.arguments[name]
        numbers = list(given) if isinstance(given, list | tuple) else [given]
        return triple(self.sketch, numbers or [fill], x.dimensions, fill, f"argument {name}")

    def size(self, x: Value) -> Triple:
        """Return the size that the call makes of a feature map."""
        space = [int(n) for n in self.node.meta["val"].shape[2:]]
        return triple(self.sketch, space, x.dimensions, 1, "its output")


Translation = Callable[[Call, str], Found]


def _bound(target: Any, node: Any) -> Mapping[str, Any]:
    """Return a call's arguments by name, defaults included."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return {}
    found = {}
    for place, argument in enumerate(schema.arguments):
        usual = argument.default_value if argument.has_default_value() else None
        given = (
            node.args[place] if place < len(node.args) else node.kwargs.get(argument.name, usual)
        )
        found["input" if place == 0 else argument.name] = given
    return found
