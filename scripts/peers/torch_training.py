"""A config's network and training in PyTorch: same first weights, patches, optimiser, schedule and average."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from peers.onednn import conv3d
from znnpy.config.models import Config
from znnpy.data.sampling.prefetch import Batch, make_batch
from znnpy.learning.optimizers import AdamW
from znnpy.network import initial_parameters
from znnpy.network.types import Edge, Network, Node
from znnpy.train.learning_rate import learning_rate
from znnpy.train.patch_sources import open_sampler

Arrays = dict[str, NDArray[np.float32]]
FUNCTIONS = {
    "linear": lambda it: it,
    "relu": functional.relu,
    "silu": functional.silu,
    "elu": functional.elu,
}
KEPT = ("running_mean", "running_variance")  # of a batch norm, which are not learned


class Net(torch.nn.Module):
    """A network of convolutions, max-poolings, sums, linear upsampling and batch norms, node by node."""

    def __init__(self, network: Network, values: Arrays) -> None:
        super().__init__()
        self.network = network
        self.values = {name: torch.tensor(value) for name, value in values.items()}
        for name, value in self.values.items():
            value.requires_grad_(not name.endswith(KEPT))

    def learned(self) -> dict[str, torch.Tensor]:
        """What is learned, by znnpy's names."""
        return {name: it for name, it in self.values.items() if it.requires_grad}

    def arrays(self) -> Arrays:
        """Copies of all parameters, by znnpy's names."""
        return {name: it.detach().numpy().copy() for name, it in self.values.items()}

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits of images (batch, channel, z, y, x), by the batch's own statistics."""
        found = {self.network.inputs[0].name: image}
        for node in self.network.nodes:
            if node.kind != "input":
                arriving = (
                    self._along(it, found[it.source]) for it in self.network.incoming(node.name)
                )
                found[node.name] = self._at(node, sum(arriving))
        return found[self.network.outputs[0].name]

    def _along(self, edge: Edge, values: torch.Tensor) -> torch.Tensor:
        if edge.kind == "conv":
            filters = self.values[edge.name]
            padding = tuple(size // 2 for size in filters.shape[2:])
            return conv3d(values, filters, padding=padding)
        if edge.kind == "max_pool":
            return functional.max_pool3d(values, edge.size, edge.stride)
        if edge.kind == "upsample":
            return functional.interpolate(values, scale_factor=edge.factor, mode="trilinear")
        assert edge.kind == "identity", edge.kind
        return values

    def _at(self, node: Node, values: Any) -> torch.Tensor:
        if node.name in self.values:
            values = values + self.values[node.name].view(-1, 1, 1, 1)
        if node.norm is not None:
            own = [self.values[f"{node.name}.{part}"] for part in (*KEPT, "scale", "shift")]
            values = functional.batch_norm(
                values, *own, True, node.norm.momentum, node.norm.epsilon
            )
        return FUNCTIONS[node.function](values)


class Training:
    """A config of one output, AdamW and a cross-entropy: its net, its optimiser, and the average of its weights."""

    def __init__(self, config: Config, network: Network) -> None:
        self._training = training = config.training
        assert isinstance(training.optimizer, AdamW)
        assert training.ema is not None
        self._net = Net(network, initial_parameters(network, training.seed))
        self._learned = learned = self._net.learned()
        filters = [it for it in learned.values() if it.ndim > 1]
        others = [it for it in learned.values() if it.ndim == 1]
        groups = [
            {"params": filters, "weight_decay": training.optimizer.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(groups)
        self._average = {name: it.detach().clone() for name, it in learned.items()}
        self.count = 0

    def update(self, batch: Batch, rate: float) -> float:
        """Make an update; return the loss before it."""
        training = self._training
        image, target, weight = (
            torch.tensor(next(iter(it.values())))
            for it in (batch.images, batch.targets, batch.weights)
        )
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        loss = functional.binary_cross_entropy_with_logits(
            self._net(image), target, weight.expand_as(target)
        )
        self._optimizer.zero_grad()
        loss.backward()
        if training.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._learned.values(), training.clip_norm)
        self._optimizer.step()
        assert training.ema is not None
        kept = min(training.ema.decay, (1 + self.count) / (10 + self.count))
        with torch.no_grad():
            for name, mean in self._average.items():
                mean.lerp_(self._learned[name], 1 - kept)
        self.count += 1
        return float(loss.detach())

    def weights(self) -> Arrays:
        """Return all weights, their average where they are learned."""
        return self._net.arrays() | {name: it.numpy() for name, it in self._average.items()}


def trained(
    config: Config, network: Network, limit: float, updates: int | None = None
) -> tuple[Arrays, int, float]:
    """Train a config; return weights (their average), updates and seconds.

    Ends after `limit` seconds of training, at a schedule that is stretched over them by the time that the first
    updates took; or after so many `updates`, whatever the time.
    """
    training, own = config.training, Training(config, network)
    with ExitStack() as stack:
        sampler = open_sampler(stack, config, network, config.data.train, "data.train")
        begun = time.monotonic()
        while True:
            batch = make_batch(sampler, own.count, training.batch)
            # As far in the schedule as in the time.
            seconds = time.monotonic() - begun
            spent = own.count / updates if updates else seconds / limit
            if spent >= 1:
                break
            own.update(batch, learning_rate(training, round(spent * training.iterations)))
    return own.weights(), own.count, seconds
