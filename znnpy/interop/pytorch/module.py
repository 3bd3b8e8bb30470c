"""`from_torch`: a module of PyTorch as a `Model`."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from znnpy.engine import Model, Training
from znnpy.errors import ArgumentError, ModelFileError
from znnpy.interop.operators.described import Described, described
from znnpy.interop.operators.sketch import Bench, Sketch
from znnpy.interop.operators.training import loss_for
from znnpy.interop.operators.value import Value
from znnpy.interop.pytorch.attention import refuse_attention
from znnpy.interop.pytorch.calls import Calls
from znnpy.interop.pytorch.operators import OPERATORS
from znnpy.network.types import Triple


def from_torch(module: Any, example: Any, output_shape: Any = None, **settings: Any) -> Model:
    """Return a model that computes what a module does in `eval()`, with its weights; the module stays as it is.

    `example`: one input, a tensor (batch, channels, z, y, x), or (batch, channels, y, x) of a flat net, which runs
    with z = 1. `output_shape` and all other settings are those of `Model`; by default patches are as large as the
    example, and the loss is one that the outputs' functions go with. Filters that only copy channels are frozen.
    Raises ModelFileError, which names the first operator that is not supported, ArgumentError for what is no module
    or tensor, ShapeError and others as `Model`.
    """
    found = described_module(module, example)
    if "network" in settings:
        raise ArgumentError("from_torch() takes no network=; it makes one")
    training = settings.pop("training", True)
    if found.frozen and training is not False:
        given = training if isinstance(training, Training) else Training()
        training = replace(given, freeze=(*given.freeze, *found.frozen))
    shapes = found.shapes if len(found.shapes) > 1 else next(iter(found.shapes.values()))
    shape = shapes if output_shape is None else output_shape
    settings.setdefault("loss", loss_for(found.network))
    model = Model(found.network, shape, training=training, **settings)
    model.set_parameters(found.parameters)
    return model


def described_module(module: Any, example: Any) -> Described:
    """Return the net of a module as nodes, edges and parameters."""
    torch = _library()
    inputs = tuple(example) if isinstance(example, tuple | list) else (example,)
    if not isinstance(module, torch.nn.Module):
        raise ArgumentError(f"a torch.nn.Module is needed; found {type(module).__name__}")
    if len(inputs) != 1 or not isinstance(inputs[0], torch.Tensor) or inputs[0].dim() not in (4, 5):
        raise ArgumentError(
            "the example must be one tensor (batch, channels, z, y, x), or without z"
        )
    refuse_attention(torch, module)
    program = _exported(torch, module, inputs)
    sketch = Sketch()
    calls = Calls(sketch, torch, OPERATORS)
    _placeholders(program, sketch, calls)
    for node in program.graph.nodes:
        if node.op == "call_function":
            calls.add(node)
        elif node.op == "output":
            return described(sketch, _outputs(calls, node.args[0]))
    raise ModelFileError("the module has no output")


def _library() -> Any:
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


def _placeholders(program: Any, sketch: Sketch, calls: Calls) -> None:
    """Tell what parameters, buffers and the input are; an input that is not read is none."""
    tensors = {**program.state_dict, **program.constants}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        spec = specs[node.name]
        if spec.kind.name != "USER_INPUT":
            calls.tensors[node.name] = tensors[spec.target]
            calls.targets[node.name] = spec.target
            if spec.kind.name == "PARAMETER":
                calls.learned.add(spec.target)
            continue
        seen = tuple(int(n) for n in node.meta["val"].shape)
        z, y, x = (1,) * (5 - len(seen)) + seen[2:]
        size: Triple = (z, y, x)
        name = sketch.name("input")
        sketch.nodes[name] = Bench("input", seen[1], size)
        calls.values[node.name] = Value(name, seen[1], size, seen)


def _outputs(calls: Calls, given: Any) -> dict[str, Value]:
    nodes = [node for node in given if node is not None]
    found = dict[str, Value]()
    for number, node in enumerate(nodes):
        value = calls.values.get(node.name)
        if not isinstance(value, Value):
            raise ModelFileError(f"output {number} of the module is no feature map of its input")
        found[f"output{number or ''}"] = value
    return found
