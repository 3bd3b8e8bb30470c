"""What modules write out: MedNeXt's GRN and layer norm, ConvNeXt's, CPnet's style, `normalize`, softsign."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from znnpy import Model, load_network
from znnpy.errors import ModelFileError
from znnpy.interop.pytorch.module import from_torch
from znnpy.interop.source import read_model

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("monai")
pytest.importorskip("dynamic_network_architectures")
from taken_nets import exported  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

CHANNELS = 5


class Net(nn.Module):
    """A convolution, what is written out, a convolution."""

    def __init__(self, kind: str, flat: bool = False) -> None:
        super().__init__()
        conv = nn.Conv2d if flat else nn.Conv3d
        ones = (1,) * (2 if flat else 3)
        self.kind, self.axes = kind, tuple(range(2, 2 + len(ones)))
        self.conv, self.out = conv(1, CHANNELS, 3, padding=1), conv(CHANNELS, 2, 1)
        self.gamma = nn.Parameter(torch.randn(1, CHANNELS, *ones))
        self.beta = nn.Parameter(torch.randn(1, CHANNELS, *ones))
        self.full = nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x: Any) -> Any:
        return self.out(self.written(self.conv(x)))

    def written(self, x: Any) -> Any:
        match self.kind:
            case "grn":  # MedNeXt
                gx = torch.norm(x, p=2, dim=self.axes, keepdim=True)
                nx = gx / (gx.mean(dim=1, keepdim=True) + 1e-6)
                return self.gamma * (x * nx) + self.beta + x
            case "layer norm":  # ConvNeXt's and MedNeXt's, of channels first
                u = x.mean(1, keepdim=True)
                s = (x - u).pow(2).mean(1, keepdim=True)
                return self.gamma * ((x - u) / torch.sqrt(s + 1e-6)) + self.beta
            case "centred":
                centred = x - x.mean(1, keepdim=True)
                return centred / torch.sqrt((centred * centred).mean(1, keepdim=True) + 1e-5)
            case "normalize":
                return functional.normalize(x, dim=1) * self.gamma + self.beta
            case "style":  # CPnet
                style = functional.avg_pool2d(x, kernel_size=x.shape[-2:])
                style = torch.flatten(style, 1)
                style = style / torch.sum(style**2, axis=1, keepdim=True) ** 0.5
                return x + self.full(style).unsqueeze(-1).unsqueeze(-1)
            case "half":  # the norm of another axis than is divided by
                return x / torch.sum(x**2, axis=2, keepdim=True) ** 0.5
            case "twice":
                gx = torch.norm(x, p=2, dim=self.axes, keepdim=True)
                return x * gx / (gx.mean(dim=1, keepdim=True) + 1e-6)
            case "square":
                return x**2
            case "softsign":
                return functional.softsign(x)
            case "magnitude":
                return x.abs()
        raise AssertionError


def image(flat: bool) -> Any:
    return torch.randn(1, 1, *((8, 10) if flat else (4, 6, 5)))


def solid(values: Any) -> np.ndarray:
    """With an axis z."""
    found: np.ndarray = values.detach().numpy()
    return found.reshape(*found.shape[:2], *(1,) * (5 - found.ndim), *found.shape[2:])


KINDS = {
    "grn": "response", "layer norm": "channel", "centred": "channel", "normalize": "length", "style": "length",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_a_step_down_the_gradient(kind: str) -> None:
    torch.manual_seed(0)
    net, x = Net(kind, flat=kind == "style").eval(), image(flat=kind == "style")
    with from_torch(net, x, threads=1, loss="square") as model:
        norms = [node.norm for node in model.network.nodes if node.norm]
        assert [norm.kind for norm in norms] == [KINDS[kind]]
        given, wanted = solid(x), net(x)
        np.testing.assert_allclose(model.forward(given), solid(wanted), rtol=1e-4, atol=1e-5)
        target = torch.randn_like(wanted)
        ((wanted - target) ** 2).mean().backward()
        with torch.no_grad():
            for parameter in net.parameters():
                if parameter.grad is not None:
                    parameter -= 0.1 * parameter.grad
        _, gradients = model.loss_and_gradients(given, solid(target))
        before = model.parameters
        model.set_parameters({n: before[n] - 0.1 * gradients[n] for n in gradients})
        np.testing.assert_allclose(model.forward(given), solid(net(x)), rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore")  # of PyTorch's exporter
@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "style"])
def test_files_of_both_exporters(kind: str, dynamo: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, x = Net(kind).eval(), image(flat=False)
    path = exported(net, x, tmp_path / "a.onnx", dynamo)
    found = read_model(path)
    network = load_network(found.config["network"])
    assert [node.norm.kind for node in network.nodes if node.norm] == [KINDS[kind]]
    with Model(network, x.shape[2:], threads=1, training=False) as model:
        model.set_parameters(found.members["weights"]())
        np.testing.assert_allclose(model.forward(solid(x)), solid(net(x)), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # of PyTorch's exporter
def test_softsign(tmp_path: Path) -> None:
    """It is x by its magnitude and 1 for `torch.export`, an operator of its own or parts in files."""
    torch.manual_seed(0)
    net, x = Net("softsign").eval(), image(flat=False)
    with from_torch(net, x, threads=1) as model:
        assert "soft_sign" in [node.function for node in model.network.nodes]
        np.testing.assert_allclose(model.forward(solid(x)), solid(net(x)), rtol=1e-4, atol=1e-5)
    for dynamo in (True, False):
        found = read_model(exported(net, x, tmp_path / f"{dynamo}.onnx", dynamo))
        nodes = load_network(found.config["network"]).nodes
        assert "soft_sign" in [node.function for node in nodes]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("half", "part of a norm that is not supported"),
        ("twice", "part of a norm that is not supported"),
        ("square", "part of a norm that is not supported"),
        ("magnitude", "part of a norm that is not supported"),
    ],
)
def test_what_makes_no_norm_is_refused(kind: str, words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        from_torch(Net(kind).eval(), image(flat=False))
