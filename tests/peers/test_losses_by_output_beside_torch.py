"""A net with two heads and a loss for each beside PyTorch: losses, and weights after some steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy import Hardware, Model, Optimizer, Training

torch = pytest.importorskip("torch")

NET = {
    "nodes": {
        "raw": {"kind": "input", "channels": 1},
        "shared": {"kind": "transfer", "channels": 4, "function": "elu"},
        "joins": {"kind": "transfer", "channels": 3},
        "shapes": {"kind": "transfer", "channels": 10},
    },
    "edges": {
        "c": {"kind": "conv", "from": "raw", "to": "shared", "size": 3},
        "a": {"kind": "conv", "from": "shared", "to": "joins", "size": 1},
        "b": {"kind": "conv", "from": "shared", "to": "shapes", "size": [1, 2, 2]},
    },
}


class Heads(torch.nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
    """The same net, with the same weights."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        super().__init__()
        own = {"c": "shared", "a": "joins", "b": "shapes"}
        for edge, node in own.items():
            filters, bias = parameters[edge], parameters[node]
            out, into, *size = filters.shape
            made = torch.nn.Conv3d(into, out, size).double()
            made.weight.data = torch.tensor(np.ascontiguousarray(filters), dtype=torch.float64)
            made.bias.data = torch.tensor(bias, dtype=torch.float64)
            self.add_module(edge, made)

    def forward(self, x: Any) -> tuple[Any, Any]:
        """The outputs."""
        shared = torch.nn.functional.elu(self.c(x))
        return self.a(shared), self.b(shared)


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("microbatch", [2, 1])
def test_steps(precision: Any, microbatch: int) -> None:
    rng, tolerance = np.random.default_rng(0), 1e-9 if precision == "float64" else 2e-5
    shapes = {"joins": (3, 5, 5), "shapes": (3, 4, 4)}
    with Model(
        NET, shapes, batch=2, threads=2, conv="direct", seed=1,
        loss={"joins": "binomial_cross_entropy", "shapes": {"kind": "square"}},
        optimizer=Optimizer("sgd", momentum=0.9),
        training=Training(factors={"joins": 0.7, "shapes": 0.3}, microbatch=microbatch),
        hardware=Hardware(precision=precision),
    ) as own:  # fmt: skip
        net = Heads(own.parameters)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            x = rng.normal(size=(2, 1, 5, 7, 7))
            targets = {
                "joins": (rng.random((2, 3, 3, 5, 5)) < 0.3) * 1.0,
                "shapes": rng.normal(size=(2, 10, 3, 4, 4)),
            }
            result = own.result(own.submit(x, targets, learning_rate=0.1))
            joins, found = net(torch.tensor(x))
            terms = {
                "joins": 0.7 * torch.nn.functional.binary_cross_entropy_with_logits(
                    joins, torch.tensor(targets["joins"])),
                "shapes": 0.3 * torch.nn.functional.mse_loss(found, torch.tensor(targets["shapes"])),
            }  # fmt: skip
            for name, term in terms.items():
                assert result.losses[name] == pytest.approx(term.item(), rel=10 * tolerance)
            optimizer.zero_grad()
            sum(terms.values()).backward()
            optimizer.step()
        theirs = dict(net.named_parameters())
        for edge, node in (("c", "shared"), ("a", "joins"), ("b", "shapes")):
            for name, kind in ((edge, "weight"), (node, "bias")):
                wanted = theirs[f"{edge}.{kind}"].detach().numpy()
                np.testing.assert_allclose(own.parameters[name], wanted, atol=10 * tolerance)
