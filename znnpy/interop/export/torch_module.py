"""A computation as the text of a module of plain torch.nn."""

from __future__ import annotations

import numpy as np

from znnpy.interop.export.computation import Computation
from znnpy.interop.export.torch_classes import CLASSES
from znnpy.interop.export.torch_layers import applied, layer

_HEAD = '''"""{title}

{about}
    net = load()
    {outputs} = net({inputs})

{shapes}
"""

{reduce}from pathlib import Path

import torch
from torch import nn
{functional}
'''
_LOAD = '''

def load(weights=Path(__file__).with_suffix(".pth")):
    """Return the net with the weights of a file, in the mode for prediction."""
    net = Net(){double}
    net.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return net.eval()
'''


def module_text(computation: Computation, title: str, about: str) -> str:
    """Return a Python file whose class Net computes this, and whose function `load` gives it the weights beside it.

    `title`, `about`: what its docstring begins with, whatever characters they have.
    """
    layers = {it.name: made for it in computation.operations if (made := layer(it))}
    own = [text for name, text in CLASSES.items() if any(name in made for made in layers.values())]
    inputs, outputs = list(computation.inputs), list(computation.outputs)
    double = any(array.dtype == np.float64 for array in computation.tensors.values())
    imported = "from torch.nn import functional\n" if any("functional." in it for it in own) else ""
    said = _statements(computation)
    head = _HEAD.format(
        title=_quotable(title),
        about=_quotable(about),
        inputs=", ".join(inputs),
        outputs=", ".join(outputs),
        shapes=_shapes(computation, "float64" if double else "float32"),
        functional=imported,
        reduce="from functools import reduce\n" if any("reduce(" in it for it in said) else "",
    )
    body = [f"        self.{name} = {made}" for name, made in layers.items()]
    body += [f"        self.{name}.requires_grad_(False)" for name in computation.fixed]
    lines = [
        "class Net(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        *body,
        "",
        f"    def forward(self, {', '.join(inputs)}):",
        *(f"        {line}" for line in said),
        f"        return {', '.join(outputs)}",
        "",
    ]
    whole = [head, *(f"{text}\n" for text in own), "\n".join(lines)]
    return "\n".join(whole) + _LOAD.format(double=".double()" if double else "")


def _quotable(text: str) -> str:
    """Return text that ends no docstring and is ASCII."""
    plain = text.encode("ascii", "backslashreplace").decode()
    return plain.replace("\\", "/").replace('"', "'")


def _shapes(computation: Computation, dtype: str) -> str:
    lines = [
        f"{name}: (batch, {channels}, z, y, x) {dtype}"
        for some in (computation.inputs, computation.outputs)
        for name, channels in some.items()
    ]
    return "\n".join(lines)


def _statements(computation: Computation) -> list[str]:
    """Return a line for each feature map; what lies between is written where it is read."""
    between: dict[str, str] = {}
    lines = []
    for it in computation.operations:
        said = applied(it, [between.get(name, name) for name in it.inputs])
        if it.output in computation.nodes:
            lines.append(f"{it.output} = {said}")
        else:
            between[it.output] = said
    return lines
