"""PyTorch as a contestant beside znnpy: same weights, same sample, one update at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from peers.cases import Case
from peers.onednn import conv3d
from peers.ours import LEARNING_RATE, MOMENTUM, Arrays, output_results
from znnpy.geometry import fit
from znnpy.layers.windows import sides
from znnpy.network.types import Edge, Node, Triple

FORMATS = {
    "contiguous": torch.contiguous_format,
    "onednn": torch.contiguous_format,  # and oneDNN for small images, too
    "channels_last_3d": torch.channels_last_3d,
}
FLAT_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


_CONVOLUTIONS = {  # by whether cases are flat, and oneDNN is asked for
    (False, False): functional.conv3d,
    (False, True): conv3d,
    (True, False): functional.conv2d,
}


class Torch:
    """PyTorch in one memory format, with the same weights.

    Eager as users write it; or compiled, with a max-filter taken axis by axis and, for inference,
    frozen weights.
    """

    def __init__(
        self, case: Case, parameters: Arrays, memory_format: str, *, compiled: bool = False
    ) -> None:
        self.case, self.names = case, list(parameters)
        self.layout = (FLAT_FORMATS if case.flat else FORMATS)[memory_format]
        self.input, self.target = self.sample(0)
        self.network = _Graph(case, parameters, self.layout, separable=compiled)
        self.network.convolve = _CONVOLUTIONS[case.flat, memory_format == "onednn"]
        self.call: Any = self.network
        if compiled:
            torch._dynamo.reset()
            torch._inductor.config.freezing = not case.training
            self.call = torch.compile(self.network)
        self.optimizer = torch.optim.SGD(
            list(self.network.parameters()), lr=LEARNING_RATE, momentum=MOMENTUM, fused=True
        )

    def results(self, seed: int) -> tuple[float, Arrays]:
        image, target = self.sample(seed)
        if not self.case.training:
            return output_results(self.shaped(self._forward(image).numpy()))
        loss = self._backward(image, target)
        return loss, self.network.gradients(self.names)

    def run(self, count: int) -> None:
        for _ in range(count):
            if self.case.training:
                self._backward(self.input, self.target)
                self.optimizer.step()
            else:
                self._forward(self.input)

    def sample(self, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Image and target, in its memory format; without an axis z where the case is flat."""
        arrays = (a[:, :, 0] if self.case.flat else a for a in self.case.sample(seed))
        image, target = (torch.from_numpy(a).to(memory_format=self.layout) for a in arrays)
        return image, target

    def shaped(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """An image as znnpy has it, with an axis z."""
        return values[:, :, None] if values.ndim == 4 else values

    def _forward(self, image: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.call(image)

    def _backward(self, image: torch.Tensor, target: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        output = self.call(image)
        if self.case.loss == "square":
            loss = functional.mse_loss(output, target)
        else:
            loss = functional.binary_cross_entropy_with_logits(output, target)
        loss.backward()
        return float(loss.item())


class _Graph(torch.nn.Module):
    """A case's network, node by node."""

    def __init__(
        self, case: Case, parameters: Arrays, layout: torch.memory_format, separable: bool
    ) -> None:
        super().__init__()
        self.network, self.separable, self.flat = case.network, separable, case.flat
        self.convolve: Any = functional.conv3d
        self.dilations = fit(case.network, case.output_shape).dilations
        self.exchanged = {e.name for e in case.network.edges if e.kind == "conv_transpose"}
        # Names of modules have no dots.
        self.banks = torch.nn.ParameterDict(
            {_module(n): self._leaf(n, np.array(value), layout) for n, value in parameters.items()}
        )

    def _leaf(
        self, name: str, value: NDArray[np.float32], layout: torch.memory_format
    ) -> torch.nn.Parameter:
        if value.ndim == 1:
            return torch.nn.Parameter(torch.from_numpy(value))
        value = value.swapaxes(0, 1) if name in self.exchanged else value
        tensor = torch.from_numpy(value[:, :, 0] if self.flat else value)
        return torch.nn.Parameter(tensor.contiguous(memory_format=layout))

    def gradients(self, names: Iterable[str]) -> Arrays:
        """Gradients by znnpy's names, in its order of axes."""
        found = {}
        for name in names:
            value = self.banks[_module(name)].grad.numpy()
            value = value[:, :, None] if value.ndim == 4 else value
            found[name] = (value.swapaxes(0, 1) if name in self.exchanged else value).copy()
        return found

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        values = {self.network.inputs[0].name: image}
        for node in self.network.nodes[1:]:
            edges = self.network.incoming(node.name)
            parts = [self._through(edge, node, values[edge.source]) for edge in edges]
            total = torch.cat(parts, 1) if node.kind == "concat" else sum(parts[1:], parts[0])
            values[node.name] = functional.relu(total) if node.function == "relu" else total
        return values[self.network.outputs[0].name]

    def _through(self, edge: Edge, node: Node, image: torch.Tensor) -> torch.Tensor:
        dilation, axes = self.dilations[edge.name], slice(1 if self.flat else 0, 3)
        if edge.kind == "identity":
            return image
        if edge.kind == "max_filter" and self.separable:
            return _max_by_axis(image, edge.size, dilation)
        if edge.kind == "max_filter":
            return functional.max_pool3d(image, edge.size, stride=1, dilation=dilation)
        if edge.kind == "max_pool":
            pool = functional.max_pool2d if self.flat else functional.max_pool3d
            return pool(image, edge.size[axes], edge.stride[axes])
        bias = self.banks[_module(node.name)]
        if edge.kind == "crop":  # a layer's own input: its bias asks for the data gradient
            return image + bias[:, None, None, None]
        bank, stride = self.banks[_module(edge.name)], edge.stride[axes]
        if edge.kind == "conv_transpose":
            grow = functional.conv_transpose2d if self.flat else functional.conv_transpose3d
            return grow(image, bank, bias, stride)
        padding = tuple(before for before, _ in sides(edge, dilation))[axes]
        return self.convolve(image, bank, bias, stride, padding, dilation[axes], edge.groups)


def _module(name: str) -> str:
    return name.replace(".", "_")


def _max_by_axis(image: torch.Tensor, size: Triple, dilation: Triple) -> torch.Tensor:
    """The largest of each window, one axis after the other: fewer comparisons than all at once."""
    for axis, (count, step) in enumerate(zip(size, dilation, strict=True), start=2):
        kept = image.shape[axis] - (count - 1) * step
        largest = image.narrow(axis, 0, kept)
        for tap in range(1, count):
            largest = torch.maximum(largest, image.narrow(axis, tap * step, kept))
        image = largest
    return image
