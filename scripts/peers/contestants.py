"""znnpy and PyTorch behind one face: same weights, same sample, one update at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

import znnpy
from peers.cases import Case
from znnpy.geometry import fit
from znnpy.network.types import Edge, Node

LEARNING_RATE = 0.01
MOMENTUM = 0.9
FORMATS = {
    "contiguous": torch.contiguous_format,
    "channels_last_3d": torch.channels_last_3d,
}
Arrays = Mapping[str, NDArray[np.float32]]


class Contestant(Protocol):
    """Whoever can compute a loss, its gradients, and updates on a fixed sample."""

    def loss_and_gradients(self, seed: int) -> tuple[float, Arrays]:
        """Loss on the sample of that seed and gradients by parameter name, at the current weights."""

    def updates(self, count: int) -> None:
        """So many training updates on sample 0 in a row, complete when this returns."""


class Znnpy:
    """znnpy through its public interface."""

    def __init__(self, case: Case, threads: int, conv: str) -> None:
        self.case = case
        self.input, self.target = case.sample()
        self.model = znnpy.Model(
            case.network,
            output_shape=case.output_shape,
            batch=1,
            threads=threads,
            seed=0,
            conv=conv,
            loss=case.loss,
            optimizer=znnpy.Optimizer("sgd", momentum=MOMENTUM),
        )
        self.parameters: Arrays = {
            name: np.array(value) for name, value in self.model.parameters.items()
        }

    def loss_and_gradients(self, seed: int) -> tuple[float, Arrays]:
        return self.model.loss_and_gradients(*self.case.sample(seed), loss=self.case.loss)

    def updates(self, count: int) -> None:
        for _ in range(count):
            self.model.step(self.input, self.target, learning_rate=LEARNING_RATE)
        self.model.drain()

    def close(self) -> None:
        """Stop the worker threads."""
        self.model.close()


class Torch:
    """PyTorch, eager, in one memory format, with the same weights."""

    def __init__(self, case: Case, parameters: Arrays, memory_format: str) -> None:
        self.case = case
        self.geometry = fit(case.network, case.output_shape)
        self.layout = FORMATS[memory_format]
        self.input, self.target = self._sample(0)
        self.parameters = {name: self._leaf(np.array(value)) for name, value in parameters.items()}
        self.optimizer = torch.optim.SGD(
            list(self.parameters.values()), lr=LEARNING_RATE, momentum=MOMENTUM, fused=True
        )

    def loss_and_gradients(self, seed: int) -> tuple[float, Arrays]:
        loss = self._backward(*self._sample(seed))
        return loss, {name: p.grad.numpy().copy() for name, p in self.parameters.items()}

    def updates(self, count: int) -> None:
        for _ in range(count):
            self._backward(self.input, self.target)
            self.optimizer.step()

    def _sample(self, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        image, target = map(torch.from_numpy, self.case.sample(seed))
        return image.to(memory_format=self.layout), target.to(memory_format=self.layout)

    def _leaf(self, value: NDArray[np.float32]) -> torch.Tensor:
        tensor = torch.from_numpy(value)
        if tensor.ndim == 5:
            tensor = tensor.contiguous(memory_format=self.layout)
        return tensor.requires_grad_()

    def _backward(self, image: torch.Tensor, target: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        output = self._forward(image)
        if self.case.loss == "square":
            loss = functional.mse_loss(output, target)
        else:
            loss = functional.binary_cross_entropy_with_logits(output, target)
        loss.backward()
        return float(loss.item())

    def _forward(self, image: torch.Tensor) -> torch.Tensor:
        """The case's network, a chain, edge by edge."""
        for node in self.case.network.nodes[1:]:
            (edge,) = self.case.network.incoming(node.name)
            image = self._through(edge, node, image)
            if node.function == "relu":
                image = functional.relu(image)
        return image

    def _through(self, edge: Edge, node: Node, image: torch.Tensor) -> torch.Tensor:
        dilation = self.geometry.dilations[edge.name]
        if edge.kind == "max_filter":
            return functional.max_pool3d(image, edge.size, stride=1, dilation=dilation)
        bias = self.parameters[node.name]
        if edge.kind == "crop":  # a layer's own input: its bias asks for the data gradient
            return image + bias[:, None, None, None]
        return functional.conv3d(image, self.parameters[edge.name], bias, dilation=dilation)
