"""`unet: {order: pre}` beside the same residual net written in PyTorch: outputs and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy import Hardware, Model

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

UNET = {
    "input": 2, "widths": [4, 8], "stem": 3, "order": "pre", "norm": {"kind": "group", "groups": 2},
    "function": "elu", "join": "sum", "up": "linear", "outputs": 3, "pool": "average",
    "block": {"kind": "residual", "from": "input"},
}  # fmt: skip


def forward(w: dict[str, Any], x: Any) -> Any:
    def conv(name: str, x: Any) -> Any:
        return functional.conv3d(x, w[name], padding=w[name].shape[-1] // 2)

    def ready(name: str, x: Any) -> Any:
        return functional.elu(
            functional.group_norm(x, 2, w[f"{name}.scale"], w[f"{name}.shift"], eps=1e-5)
        )

    def block(level: str, x: Any) -> Any:
        y = conv(f"{level}.conv1", ready(f"{level}.ready1", x))
        y = conv(f"{level}.conv2", ready(f"{level}.ready2", y))
        return y + (conv(f"{level}.shortcut", x) if f"{level}.shortcut" in w else x)

    skip = block("down0", conv("stem.conv", x))
    x = block("down1", functional.avg_pool3d(skip, 2))
    x = conv("up0.narrow", x)
    x = functional.interpolate(x, scale_factor=2, mode="trilinear", align_corners=False)
    x = block("up0", x + skip)
    return conv("output.conv", ready("output.ready", x)) + w["output"][:, None, None, None]


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-9), ("float32", 2e-4)])
def test_values_and_gradients(precision: Any, tolerance: float) -> None:
    rng, out = np.random.default_rng(0), (6, 8, 10)
    x, target = rng.normal(size=(2, 2, *out)), rng.normal(size=(2, 3, *out))
    hardware = Hardware(precision=precision)
    with Model({"unet": UNET}, out, batch=2, loss="square", threads=1, hardware=hardware) as own:
        own.set_parameters(
            {
                name: array + rng.normal(0, 0.1, array.shape)
                for name, array in own.parameters.items()
            }
        )
        w = {
            name: torch.tensor(np.float64(array), requires_grad=True)
            for name, array in own.parameters.items()
        }
        values = forward(w, torch.tensor(x))
        loss = ((values - torch.tensor(target)) ** 2).mean()
        loss.backward()
        found = own.loss_and_gradients(x, target)
        assert found[0] == pytest.approx(loss.item(), rel=1e-4)
        np.testing.assert_allclose(own.forward(x), values.detach(), rtol=tolerance, atol=tolerance)
    for name, array in found[1].items():
        wanted = w[name].grad.numpy()
        np.testing.assert_allclose(
            array, wanted, rtol=tolerance, atol=tolerance * abs(wanted).max(), err_msg=name
        )
