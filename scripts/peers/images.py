"""Classification of images beside PyTorch in two dimensions: the recipes in `volumes/`, one update at a time."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from peers.cases import Case
from peers.ours import LEARNING_RATE, MOMENTUM, Arrays
from znnpy.network.types import Edge

FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


class TorchImages:
    """PyTorch in one memory format, with the same weights: 2-D layers, fully connected where nothing is left."""

    def __init__(
        self, case: Case, parameters: Arrays, memory_format: str, *, compiled: bool = False
    ) -> None:
        self.case, self.layout = case, FORMATS[memory_format]
        self.input, self.target = self._sample(0)
        self.banks = {name: self._leaf(np.array(value)) for name, value in parameters.items()}
        if compiled:
            torch._dynamo.reset()
        self.call = torch.compile(self._forward) if compiled else self._forward
        self.optimizer = torch.optim.SGD(
            list(self.banks.values()), lr=LEARNING_RATE, momentum=MOMENTUM, fused=True
        )

    def results(self, seed: int) -> tuple[float, Arrays]:
        loss = self._backward(*self._sample(seed))
        found = {name: bank.grad.numpy().copy() for name, bank in self.banks.items()}
        return loss, {n: v[:, :, None] if v.ndim == 4 else v for n, v in found.items()}

    def run(self, count: int) -> None:
        for _ in range(count):
            self._backward(self.input, self.target)
            self.optimizer.step()

    def _sample(self, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        image, target = self.case.sample(seed)
        flat = torch.from_numpy(image[:, :, 0]).to(memory_format=self.layout)
        return flat, torch.from_numpy(target[:, :, 0, 0, 0].argmax(1))

    def _leaf(self, value: NDArray[np.float32]) -> torch.nn.Parameter:
        if value.ndim == 1:
            return torch.nn.Parameter(torch.from_numpy(value))
        filters = torch.from_numpy(value[:, :, 0])
        return torch.nn.Parameter(filters.contiguous(memory_format=self.layout))

    def _backward(self, image: torch.Tensor, target: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.call(image), target)
        loss.backward()
        return float(loss.item())

    def _forward(self, image: torch.Tensor) -> torch.Tensor:
        for node in self.case.network.nodes[1:]:
            (edge,) = self.case.network.incoming(node.name)
            image = self._through(edge, image)
            if node.function == "relu":
                image = functional.relu(image)
        return image.flatten(1)

    def _through(self, edge: Edge, image: torch.Tensor) -> torch.Tensor:
        size, stride, padding = edge.size[1:], edge.stride[1:], edge.padding[1:]
        if edge.kind == "max_pool":
            return functional.max_pool2d(image, size, stride, ceil_mode=any(map(any, padding)))
        if edge.kind == "avg_pool":
            return functional.avg_pool2d(
                image, size, stride, ceil_mode=any(map(any, padding)), count_include_pad=False
            )
        bank, bias = self.banks[edge.name], self.banks[edge.target]
        if image.shape[2:] == size and not any(map(any, padding)):
            return functional.linear(image.flatten(1), bank.flatten(1), bias)[:, :, None, None]
        return functional.conv2d(image, bank, bias, padding=tuple(pair[0] for pair in padding))
