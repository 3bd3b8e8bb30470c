"""A network that shrinks and grows, float32 tasks beside PyTorch float64: outputs, gradients, 20 updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy import Model, Optimizer, load_network

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402, N812

OUTPUT = (4, 8, 12)
RATE = 0.02
NODES = {
    "input": {"kind": "input", "channels": 2},
    "a": {"kind": "transfer", "channels": 18, "function": "relu"},
    "b": {"kind": "transfer", "channels": 20, "function": "leaky_relu"},
    "c": {"kind": "transfer", "channels": 18, "function": "relu"},
    "d": {"kind": "sum", "channels": 20},
    "e": {"kind": "concat", "channels": 38},
    "out": {"kind": "transfer", "channels": 3},
}
ODD = {"size": 3, "stride": 2, "padding": 1}
EDGES = {
    "first": {"kind": "conv", "from": "input", "to": "a", "size": 3, "padding": 1},
    "down": {"kind": "conv", "from": "a", "to": "b", **ODD},
    "up": {"kind": "conv_transpose", "from": "b", "to": "c", **ODD, "output_padding": 1},
    "skip": {"kind": "identity", "from": "a", "to": "c"},
    "wide": {"kind": "upsample", "from": "b", "to": "d", "factor": 2, "mode": "linear"},
    "left": {"kind": "identity", "from": "c", "to": "e"},
    "right": {"kind": "identity", "from": "d", "to": "e"},
    "last": {"kind": "conv", "from": "e", "to": "out", "size": 1},
}


def forward(p: dict[str, Any], x: Any) -> Any:
    """The same network in PyTorch, whose transposed filters are (in, out, z, y, x)."""
    a = F.relu(F.conv3d(x, p["first"], p["a"], padding=1))
    b = F.leaky_relu(F.conv3d(a, p["down"], p["b"], stride=2, padding=1), 0.01)
    filters = p["up"].swapaxes(0, 1)
    up = F.conv_transpose3d(b, filters, p["c"], stride=2, padding=1, output_padding=1)
    d = F.interpolate(b, scale_factor=2, mode="trilinear", align_corners=False)
    return F.conv3d(torch.cat([F.relu(up + a), d], 1), p["last"], p["out"])


def test_outputs_and_updates() -> None:
    rng = np.random.default_rng(0)
    network = load_network({"nodes": NODES, "edges": EDGES})
    with Model(
        network, OUTPUT, threads=2, loss="square", optimizer=Optimizer(momentum=0.0)
    ) as model:
        given = {name: torch.tensor(v, dtype=torch.float64) for name, v in model.parameters.items()}
        peer = {name: values.requires_grad_() for name, values in given.items()}
        for _ in range(20):
            x = rng.standard_normal((1, 2, *model.input_shape)).astype(np.float32)
            target = rng.standard_normal((1, 3, *OUTPUT)).astype(np.float32)
            values = forward(peer, torch.tensor(x, dtype=torch.float64))
            np.testing.assert_allclose(model.forward(x), values.detach().numpy(), atol=2e-4)
            loss = (values - torch.tensor(target)).square().mean()
            grads = torch.autograd.grad(loss, list(peer.values()))
            found, gradients = model.loss_and_gradients(x, target)
            assert found == pytest.approx(loss.item(), rel=1e-4)
            for name, wanted in zip(peer, grads, strict=True):
                np.testing.assert_allclose(gradients[name], wanted.numpy(), atol=2e-4, err_msg=name)
                peer[name].data -= RATE * wanted
            model.step(x, target, learning_rate=RATE)
        for name, values in model.parameters.items():
            np.testing.assert_allclose(values, peer[name].detach().numpy(), atol=2e-4, err_msg=name)
