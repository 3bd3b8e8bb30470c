"""Every edge kind in float64 beside PyTorch: sizes, values and gradients for random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy.layers.edge_kind import Applied
from znnpy.layers.edges import EDGE_KINDS
from znnpy.layers.types import BARE, Numbers
from znnpy.layers.windows import sides

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402, N812

DRAWS = 200
BORDERS = {"zeros": "constant", "replicate": "replicate", "reflect": "reflect"}


RESIZED: dict[str, dict[str, Any]] = {
    "nearest": {"mode": "nearest"},
    "nearest_exact": {"mode": "nearest-exact"},
    "linear": {"mode": "trilinear", "align_corners": False},
    "corners": {"mode": "trilinear", "align_corners": True},
}


def triple(rng: np.random.Generator, low: int, high: int) -> tuple[int, int, int]:
    z, y, x = (int(n) for n in rng.integers(low, high + 1, 3))
    return z, y, x


def padding(rng: np.random.Generator, most: list[int]) -> Any:
    """Up to so many voxels on each side."""
    return tuple((int(rng.integers(n + 1)), int(rng.integers(n + 1))) for n in most)


def symmetric(rng: np.random.Generator, most: list[int]) -> Any:
    return tuple((n, n) for n in (int(rng.integers(n + 1)) for n in most))


def conv(rng: np.random.Generator) -> tuple[Numbers, Any]:
    size, step = triple(rng, 1, 4), triple(rng, 1, 3)
    reach = [(n - 1) * d for n, d in zip(size, step, strict=True)]
    stride = triple(rng, 1, 3)
    pad: Any = padding(rng, reach)
    if max(stride) == 1 and rng.random() < 0.3:
        pad = "same"
    border = str(rng.choice([*BORDERS]))
    if pad == BARE:
        border = "zeros"
    edge = Numbers(size=size, sparsity=step, stride=stride, padding=pad, border=border,  # type: ignore[arg-type]
                   groups=int(rng.choice([1, 2, 4])),
                   weight_standardization=bool(np.prod(size) > 1 and rng.random() < 0.3))  # fmt: skip

    def peer(x: Any, w: Any) -> Any:
        if edge.weight_standardization:
            flat = F.batch_norm(w.reshape(1, len(w), -1), None, None, training=True, eps=1e-5)
            w = flat.reshape(w.shape)
        z, y, across = sides(edge, step)
        wide = F.pad(x, (*across, *y, *z), mode=BORDERS[border])
        return F.conv3d(wide, w, stride=stride, dilation=step, groups=edge.groups)

    return edge, peer


def conv_transpose(rng: np.random.Generator) -> tuple[Numbers, Any]:
    size, stride = triple(rng, 1, 4), triple(rng, 1, 3)
    pad = symmetric(rng, [n - 1 for n in size])
    more = tuple(int(rng.integers(n)) for n in stride)
    groups = int(rng.choice([1, 2, 4]))
    edge = Numbers(size=size, stride=stride, padding=pad, output_padding=more, groups=groups)  # type: ignore[arg-type]

    def peer(x: Any, w: Any) -> Any:
        # ours (out, in / groups, ...), PyTorch's (in, out / groups, ...)
        split = w.reshape(groups, -1, *w.shape[1:]).transpose(1, 2)
        return F.conv_transpose3d(x, split.reshape(-1, *split.shape[2:]), stride=stride, groups=groups,
                                  padding=[n for n, _ in pad], output_padding=more)  # fmt: skip

    return edge, peer


def max_pool(rng: np.random.Generator) -> tuple[Numbers, Any]:
    size, stride = triple(rng, 1, 4), triple(rng, 1, 4)
    pad = symmetric(rng, [n // 2 for n in size])
    edge = Numbers(size=size, stride=stride, padding=pad)
    return edge, lambda x, w: F.max_pool3d(x, size, stride, [n for n, _ in pad])


def avg_pool(rng: np.random.Generator) -> tuple[Numbers, Any]:
    size, stride = triple(rng, 1, 4), triple(rng, 1, 4)
    pad, count = symmetric(rng, [n // 2 for n in size]), bool(rng.random() < 0.5)
    edge = Numbers(size=size, stride=stride, padding=pad, count_padding=count)
    before = [n for n, _ in pad]
    return edge, lambda x, w: F.avg_pool3d(x, size, stride, before, count_include_pad=count)


def upsample(rng: np.random.Generator) -> tuple[Numbers, Any]:
    factor, linear = triple(rng, 1, 5), bool(rng.random() < 0.5)
    edge = Numbers(factor=factor, mode="linear" if linear else "nearest")
    how: dict[str, Any] = {"mode": "trilinear", "align_corners": False} if linear else {}
    return edge, lambda x, w: F.interpolate(x, scale_factor=tuple(map(float, factor)), **how)


def resize(rng: np.random.Generator) -> tuple[Numbers, Any]:
    factor, divisor = triple(rng, 1, 4), triple(rng, 1, 4)
    more, mode = triple(rng, -2, 3), str(rng.choice([*RESIZED]))
    edge = Numbers(factor=factor, divisor=divisor, more=more, mode=mode)  # type: ignore[arg-type]

    def peer(x: Any, w: Any) -> Any:
        along = zip(x.shape[2:], factor, divisor, more, strict=True)
        return F.interpolate(x, tuple(n * f // d + m for n, f, d, m in along), **RESIZED[mode])

    return edge, peer


def identity(rng: np.random.Generator) -> tuple[Numbers, Any]:
    return Numbers(), lambda x, w: 1 * x


@pytest.mark.parametrize(
    "draw", [conv, conv_transpose, max_pool, avg_pool, upsample, resize, identity]
)
def test_sizes_values_and_gradients_are_pytorchs(draw: Any) -> None:
    kind = EDGE_KINDS[draw.__name__]
    compared = 0
    for seed in range(100 * DRAWS):
        rng = np.random.default_rng(seed)
        edge, peer = draw(rng)
        assert not list(kind.wrong(edge))
        sizes, shape = kind.sizes(edge, edge.sparsity), triple(rng, 1, 9)
        made = tuple(axis.made(n) for axis, n in zip(sizes, shape, strict=True))
        if min(made) < 1 or any(
            n < getattr(axis, "least", 1) for axis, n in zip(sizes, shape, strict=True)
        ):
            continue
        if kind.name == "avg_pool" and any(n < k for n, k in zip(shape, edge.size, strict=True)):
            continue  # PyTorch takes none that are smaller than the window, padded or not
        if any(n * f % d for n, f, d in zip(shape, edge.factor, edge.divisor, strict=True)):
            continue  # a resize leaves no voxel over
        compare(kind, edge, peer, rng, shape, made)
        compared += 1
        if compared == DRAWS:
            return
    raise AssertionError(f"only {compared} of {DRAWS} sizes were possible")


def compare(kind: Any, edge: Numbers, peer: Any, rng: Any, shape: Any, made: Any) -> None:
    image = rng.standard_normal((2, 4, *shape))
    outputs = 8 if kind.learns else 4
    filters = rng.standard_normal(kind.learns.shape(edge, 4, 8) if kind.learns else 0)
    at = Applied(edge, edge.sparsity, filters)
    gradient = rng.standard_normal((2, outputs, *made))
    x = torch.tensor(image, requires_grad=True)
    w = torch.tensor(filters, requires_grad=True)
    wanted = peer(x, w)
    assert tuple(wanted.shape) == (2, outputs, *made), edge
    wanted.backward(torch.tensor(gradient))
    np.testing.assert_allclose(
        kind.forward(image, at), wanted.detach(), atol=1e-11, err_msg=str(edge)
    )
    data = kind.data_gradient(image, gradient, at)
    np.testing.assert_allclose(data, x.grad, atol=1e-11, err_msg=str(edge))
    if kind.learns:
        weight = kind.learns.gradient(image, gradient, at)
        np.testing.assert_allclose(weight, w.grad, atol=1e-10, err_msg=str(edge))
