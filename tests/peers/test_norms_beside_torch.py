"""Normalisation beside PyTorch in float64: values, gradients and running statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy.layers import normalization
from znnpy.layers.types import Norm

torch = pytest.importorskip("torch")

IMAGES = 6
SHAPE = (3, IMAGES, 2, 3, 4)


def layer(norm: Norm) -> Any:
    """The layer of PyTorch that is the same, in float64."""
    how = {"eps": norm.epsilon, "affine": norm.affine, "dtype": torch.float64}
    if norm.kind == "batch":
        return torch.nn.BatchNorm3d(IMAGES, momentum=norm.momentum, **how)
    if norm.kind == "instance":
        return torch.nn.InstanceNorm3d(IMAGES, **how)
    return torch.nn.GroupNorm(norm.parts(IMAGES), IMAGES, **how)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-3])
@pytest.mark.parametrize("kind", ["batch", "instance", "group", "layer"])
def test_values_gradients_and_running_statistics(kind: Any, epsilon: float, affine: bool) -> None:
    norm = Norm(kind, 2 if kind == "group" else 1, epsilon, 0.3, affine)
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal(SHAPE) * 2 + 5, rng.standard_normal(SHAPE)
    peer, given = layer(norm), torch.tensor(x, requires_grad=True)
    scale, shift = np.ones(IMAGES), np.zeros(IMAGES)
    if affine:
        scale, shift = rng.standard_normal(IMAGES), rng.standard_normal(IMAGES)
        peer.weight.data, peer.bias.data = torch.tensor(scale), torch.tensor(shift)
    found = peer(given)
    (found * torch.tensor(g)).sum().backward()

    unit = normalization.normalised(x, norm, normalization.statistics(x, norm))
    by_image = (slice(None), None, None, None)
    values = unit * scale[by_image] + shift[by_image]
    np.testing.assert_allclose(values, found.detach().numpy(), atol=1e-10)
    gradient = normalization.normalised_gradient(x, g * scale[by_image], norm)
    np.testing.assert_allclose(gradient, given.grad.numpy(), atol=1e-10)
    if affine:
        over = (0, 2, 3, 4)
        np.testing.assert_allclose((g * unit).sum(over), peer.weight.grad.numpy(), atol=1e-9)
        np.testing.assert_allclose(g.sum(over), peer.bias.grad.numpy(), atol=1e-9)
    if kind == "batch":
        mean, variance = normalization.moved(np.zeros(IMAGES), np.ones(IMAGES), x, norm)
        np.testing.assert_allclose(mean, peer.running_mean.numpy(), atol=1e-12)
        np.testing.assert_allclose(variance, peer.running_var.numpy(), atol=1e-12)
        peer.eval()
        by = normalization.given(mean, variance)
        values = normalization.normalised(x, norm, by) * scale[by_image] + shift[by_image]
        np.testing.assert_allclose(values, peer(given).detach().numpy(), atol=1e-10)
