"""A net with two heads and a loss for each beside PyTorch: losses, and weights after some steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy import Hardware, Model, Optimizer, Training, from_torch

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


class Mixed(torch.nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
    """Classes, a boundary, and values."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = torch.nn.Conv3d(1, 4, 3, padding=1)
        self.kinds, self.edge, self.far = (torch.nn.Conv3d(4, n, 1) for n in (3, 1, 2))

    def forward(self, x: Any) -> tuple[Any, Any, Any]:
        """The outputs."""
        x = torch.nn.functional.relu(self.shared(x))
        return torch.softmax(self.kinds(x), 1), torch.sigmoid(self.edge(x)), self.far(x)


def test_a_module_with_outputs_of_several_kinds() -> None:
    """Each is trained by the loss that its function goes with, from logits; values are the module's."""
    torch.manual_seed(0)
    net, image = Mixed().eval(), torch.randn(1, 1, 4, 6, 8)
    rng = np.random.default_rng(0)
    with from_torch(net, image, threads=1, optimizer=Optimizer("sgd", momentum=0.0)) as own:
        theirs = [it.detach().numpy() for it in net(image)]
        found = own.forward(image.numpy())
        names = list(own.losses)
        kinds = [own.losses[name].loss.name for name in names]
        assert kinds == ["softmax", "binomial_cross_entropy", "square"]
        for name, wanted in zip(names, theirs, strict=True):
            np.testing.assert_allclose(found[name], wanted, atol=1e-6)
        known = rng.integers(0, 3, (1, 4, 6, 8))
        targets = [
            np.moveaxis(np.eye(3)[known], -1, 1),
            rng.random((1, 1, 4, 6, 8)),
            rng.normal(size=(1, 2, 4, 6, 8)),
        ]
        before = own.parameters
        result = own.result(
            own.submit(image.numpy(), dict(zip(names, targets, strict=True)), learning_rate=0.1)
        )
        kind, edge, far = net(image)
        terms = [
            torch.nn.functional.nll_loss(torch.log(kind), torch.tensor(known)),
            torch.nn.functional.binary_cross_entropy(
                edge, torch.tensor(targets[1], dtype=torch.float32)
            ),
            torch.nn.functional.mse_loss(far, torch.tensor(targets[2], dtype=torch.float32)),
        ]
        for name, term in zip(names, terms, strict=True):
            assert result.losses[name] == pytest.approx(term.item(), rel=1e-5)
        sum(terms).backward()
        moved = own.parameters["shared"] - before["shared"]
        np.testing.assert_allclose(moved, -0.1 * net.shared.weight.grad.numpy(), atol=1e-6)
