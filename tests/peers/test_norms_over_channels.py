"""Norms over channels beside what people write in PyTorch: ConvNeXt's layer norm, GRN, `functional.normalize`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy import Hardware, Model
from znnpy.errors import ModelFileError
from znnpy.interop.pytorch.module import from_torch

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

OUT = (2, 4, 5)
CHANNELS = 20


def by_channel(array: Any) -> Any:
    return array[:, None, None, None]


def peer(kind: str, x: Any, scale: Any, shift: Any, epsilon: float) -> Any:
    """What a node makes of its sum, as its authors write it."""
    if kind == "channel":
        last = functional.layer_norm(x.permute(0, 2, 3, 4, 1), (CHANNELS,), scale, shift, epsilon)
        return last.permute(0, 4, 1, 2, 3)
    if kind == "length":
        return functional.normalize(x, dim=1, eps=epsilon) * by_channel(scale) + by_channel(shift)
    # MedNeXt's, of ConvNeXt V2.
    gx = torch.norm(x, p=2, dim=(-3, -2, -1), keepdim=True)
    nx = gx / (gx.mean(dim=1, keepdim=True) + epsilon)
    return by_channel(scale) * (x * nx) + by_channel(shift) + x


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize(
    ("kind", "epsilon"), [("channel", 1e-6), ("length", 1.5), ("response", 1e-6)]
)
def test_values_and_gradients(kind: str, epsilon: float, precision: Any) -> None:
    tolerance = 1e-9 if precision == "float64" else 2e-4
    norm = {"kind": kind, "epsilon": epsilon}
    layers = [
        {"conv": {"channels": CHANNELS, "size": [1, 2, 2], "norm": norm, "function": "gelu", "bias": True}},
        {"conv": {"channels": 2, "size": 1}},
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    x, target = rng.normal(size=(2, 1, 2, 5, 6)), rng.normal(size=(2, 2, *OUT))
    hardware = Hardware(precision=precision)
    with Model(
        {"layers": layers}, OUT, batch=2, loss="square", threads=1, hardware=hardware
    ) as own:
        own.set_parameters({n: a + rng.normal(0, 0.3, a.shape) for n, a in own.parameters.items()})
        w = {n: torch.tensor(np.float64(a), requires_grad=True) for n, a in own.parameters.items()}
        summed = functional.conv3d(torch.tensor(x), w["conv1"], w["layer1"])
        made = peer(kind, summed, w["layer1.scale"], w["layer1.shift"], epsilon)
        values = functional.conv3d(functional.gelu(made), w["conv2"], w["output"])
        loss = ((values - torch.tensor(target)) ** 2).mean()
        loss.backward()
        found, gradients = own.loss_and_gradients(x, target)
        assert found == pytest.approx(loss.item(), rel=1e-5)
        np.testing.assert_allclose(own.forward(x), values.detach(), rtol=tolerance, atol=tolerance)
    for name, array in gradients.items():
        wanted = w[name].grad.numpy()
        np.testing.assert_allclose(
            array, wanted, rtol=tolerance, atol=tolerance * abs(wanted).max(), err_msg=name
        )


class Last(nn.Module):
    """A net with a layer norm between permutations."""

    def __init__(self, axes: tuple[int, ...], *, affine: bool, bias: bool) -> None:
        super().__init__()
        self.axes = axes
        self.conv = nn.Conv3d(1, 5, 3, padding=1)
        self.norm = nn.LayerNorm(5, 1e-6, elementwise_affine=affine, bias=bias)
        self.out = nn.Conv3d(5, 2, 1)
        if affine:
            nn.init.normal_(self.norm.weight)

    def forward(self, x: Any) -> Any:
        x = self.conv(x).permute(*self.axes)
        x = self.norm(x).permute(0, 4, 1, 2, 3)
        return self.out(x)


@pytest.mark.parametrize(("affine", "bias"), [(True, True), (True, False), (False, False)])
def test_layer_norm_of_the_last_axis_is_taken_over(affine: bool, bias: bool) -> None:
    net = Last((0, 2, 3, 4, 1), affine=affine, bias=bias).eval()
    image = torch.randn(1, 1, 4, 5, 6)
    with from_torch(net, image, threads=1) as model, torch.no_grad():
        assert [node.norm.kind for node in model.network.nodes if node.norm] == ["channel"]
        np.testing.assert_allclose(model.forward(image.numpy()), net(image), rtol=1e-4, atol=1e-5)


def test_layer_norm_of_another_axis_is_refused() -> None:
    with pytest.raises(ModelFileError, match=r"layer_norm.*not that of channels"):
        from_torch(Last((0, 1, 2, 3, 4), affine=True, bias=True).eval(), torch.randn(1, 1, 4, 5, 5))
