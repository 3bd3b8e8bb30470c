"""Convolution in float64, one matrix product for each tap of the filter.

PyTorch's own float64 convolution first copies the image once for each tap, and takes many minutes for a U-Net.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import nn
from torch.nn import functional


def by_taps(module: nn.Module) -> None:
    """Let all convolutions of a module run tap by tap; transposed ones stay PyTorch's.

    ValueError for groups, dilation and padding other than zeros by number; its forward pass, for more samples than one.
    """
    layers = [layer for layer in module.modules() if type(layer) is nn.Conv3d]
    for layer in layers:
        _refuse_others(layer)
    for layer in layers:
        layer.forward = partial(_layer, layer)


def convolved(image: torch.Tensor, filters: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """Convolution without padding of one sample (1, in, z, y, x) with filters (out, in, z, y, x)."""
    if len(image) != 1:
        raise ValueError(f"convolution by taps takes one sample, not {len(image)}")
    return _Taps.apply(image, filters, stride)


def _refuse_others(layer: nn.Conv3d) -> None:
    taken = {"groups": 1, "dilation": (1, 1, 1), "padding_mode": "zeros"}
    for name, value in taken.items():
        if (found := getattr(layer, name)) != value:
            raise ValueError(
                f"convolution by taps takes {name}={value!r} alone, not {found!r}: {layer}"
            )
    if isinstance(layer.padding, str):
        raise ValueError(
            f"convolution by taps takes padding in numbers, not {layer.padding!r}: {layer}"
        )


def _layer(layer: nn.Conv3d, image: torch.Tensor) -> torch.Tensor:
    z, y, x = layer.padding
    padded = functional.pad(image, (x, x, y, y, z, z))
    sums = convolved(padded, layer.weight, layer.stride)
    return sums if layer.bias is None else sums + layer.bias[:, None, None, None]


class _Taps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, image: torch.Tensor, filters: torch.Tensor, stride: tuple[int, ...]
    ) -> torch.Tensor:
        ctx.save_for_backward(image, filters)
        ctx.stride = stride
        sizes = zip(image.shape[2:], filters.shape[2:], stride, strict=True)
        shape = [(voxels - taps) // step + 1 for voxels, taps, step in sizes]
        sums = image.new_zeros(filters.shape[0], shape[0] * shape[1] * shape[2])
        for tap, window in _windows(image, filters, stride, shape):
            sums.addmm_(filters[:, :, *tap], window.flatten(1))
        return sums.view(1, -1, *shape)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        image, filters = ctx.saved_tensors
        shape, columns = gradient.shape[2:], gradient[0].flatten(1)
        back, of_filters = torch.zeros_like(image), torch.zeros_like(filters)
        windows = _windows(image, filters, ctx.stride, shape)
        targets = _windows(back, filters, ctx.stride, shape)
        for (tap, window), (_, target) in zip(windows, targets, strict=True):
            of_filters[:, :, *tap] = columns @ window.flatten(1).T
            target += (filters[:, :, *tap].T @ columns).view_as(target)
        return back, of_filters, None


def _windows(
    image: torch.Tensor, filters: torch.Tensor, stride: tuple[int, ...], shape: Any
) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
    """Each tap, and the part of the image (in, z, y, x) that it meets."""
    for tap in product(*map(range, filters.shape[2:])):
        ends = zip(tap, shape, stride, strict=True)
        cut = [slice(first, first + (count - 1) * step + 1, step) for first, count, step in ends]
        yield tap, image[0, :, *cut]
