"""Networks with normalised nodes beside PyTorch in float64 and float32: updates, running statistics, prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy import Hardware, Model, Optimizer, load_network
from znnpy.network import learned, parameter_shapes

torch = pytest.importorskip("torch")

OUT, UPDATES, RATE = (4, 6, 5), 20, 0.05
IMAGES = 12
NORMS: dict[str, Any] = {
    "batch": lambda: torch.nn.BatchNorm3d(IMAGES),
    "instance": lambda: torch.nn.InstanceNorm3d(IMAGES, affine=True),
    "group": lambda: torch.nn.GroupNorm(4, IMAGES),
    "layer": lambda: torch.nn.GroupNorm(1, IMAGES),
}


def net(kind: str) -> Any:
    """A residual block between convolutions, every sum normalised."""
    norm = {"kind": kind, "groups": 4} if kind == "group" else kind
    node = {"kind": "transfer", "channels": IMAGES, "norm": norm, "function": "elu"}
    conv = {"kind": "conv", "size": 3}
    return load_network(
        {
            "nodes": {
                "in": {"kind": "input", "channels": 2},
                "a": node,
                "b": node,
                "c": node,
                "out": {"kind": "transfer", "channels": 3},
            },
            "edges": {
                "ia": {**conv, "from": "in", "to": "a"},
                "ab": {**conv, "from": "a", "to": "b"},
                "bc": {**conv, "size": 1, "from": "b", "to": "c"},
                "ac": {"kind": "crop", "from": "a", "to": "c", "offset": 1},
                "co": {"kind": "conv", "from": "c", "to": "out", "size": 1},
            },
        }
    )


class Peer(torch.nn.Module):
    """The same of PyTorch."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.ia = torch.nn.Conv3d(2, IMAGES, 3, bias=False)
        self.ab = torch.nn.Conv3d(IMAGES, IMAGES, 3, bias=False)
        self.bc = torch.nn.Conv3d(IMAGES, IMAGES, 1, bias=False)
        self.co = torch.nn.Conv3d(IMAGES, 3, 1)
        self.a, self.b, self.c = (NORMS[kind]() for _ in range(3))

    def forward(self, x: Any) -> Any:
        elu = torch.nn.functional.elu
        a = elu(self.a(self.ia(x)))
        c = self.bc(elu(self.b(self.ab(a)))) + a[:, :, 1:-1, 1:-1, 1:-1]
        return self.co(elu(self.c(c)))

    def named(self) -> dict[str, Any]:
        """Its tensors by our names."""
        found = {"out": self.co.bias}
        found |= {name: getattr(self, name).weight for name in ("ia", "ab", "bc", "co")}
        for name in ("a", "b", "c"):
            norm = getattr(self, name)
            found |= {f"{name}.scale": norm.weight, f"{name}.shift": norm.bias}
            if getattr(norm, "running_mean", None) is not None:
                found[f"{name}.running_mean"] = norm.running_mean
                found[f"{name}.running_variance"] = norm.running_var
        return found


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("kind", NORMS)
def test_twenty_updates(kind: str, optimizer: Any, precision: Any) -> None:
    network, rng = net(kind), np.random.default_rng(0)
    dtype = np.dtype(precision)
    peer = Peer(kind).to(torch.float64 if precision == "float64" else torch.float32)
    ours = Optimizer("sgd", momentum=0.9) if optimizer == "sgd" else Optimizer("adam", eps=1e-3)
    moved = [peer.named()[name] for name in learned(network)]
    theirs = (
        torch.optim.SGD(moved, lr=RATE, momentum=0.9)
        if optimizer == "sgd"
        else torch.optim.Adam(moved, lr=RATE, eps=1e-3)
    )
    with Model(
        network,
        OUT,
        batch=2,
        threads=2,
        loss="square",
        optimizer=ours,
        hardware=Hardware(precision=precision),
    ) as model:
        start = {name: array.astype(dtype) for name, array in model.parameters.items()}
        assert start.keys() == peer.named().keys() == parameter_shapes(network).keys()
        for name, tensor in peer.named().items():
            tensor.data[...] = torch.tensor(start[name])
        shape = (2, 2, *model.input_shape)
        for _ in range(UPDATES):
            x, target = rng.standard_normal(shape) + 1, rng.standard_normal((2, 3, *OUT))
            x, target = x.astype(dtype), target.astype(dtype)
            theirs.zero_grad()
            wanted = ((peer(torch.tensor(x)) - torch.tensor(target)) ** 2).mean()
            wanted.backward()
            theirs.step()
            assert model.step(x, target, learning_rate=RATE) == pytest.approx(
                wanted.item(), rel=1e-4
            )
        peer.eval()
        near = 1e-9 if precision == "float64" else 2e-3
        found = model.parameters
        for name, tensor in peer.named().items():
            np.testing.assert_allclose(found[name], tensor.detach().numpy(), rtol=near, atol=near)
        values = peer(torch.tensor(x)).detach().numpy()
        np.testing.assert_allclose(model.forward(x), values, rtol=near, atol=near)
    with Model(
        network, OUT, batch=2, loss="square", hardware=Hardware(precision=precision), training=False
    ) as model:
        model.set_parameters(found)
        np.testing.assert_allclose(model.forward(x), values, rtol=near, atol=near)
