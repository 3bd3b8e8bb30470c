"""Weights alone: a state dict of PyTorch, and safetensors."""

from __future__ import annotations

from collections.abc import Sequence

from znnpy.interop.export.formats import Write
from znnpy.interop.export.state_dict import each_once
from znnpy.interop.export.trained import Trained
from znnpy.weights.safetensors_writing import write_safetensors
from znnpy.weights.torch_writing import write_torch


def state_dict_files(trained: Trained) -> Sequence[Write]:
    """Return what writes the state dict, for `torch.load(..., weights_only=True)`."""
    tensors = trained.state_dict()
    return (lambda file: write_torch(file, tensors),)


def safetensors_files(trained: Trained) -> Sequence[Write]:
    """Return what writes the same tensors as safetensors: each under its first name, as that format wants it."""
    tensors, about = each_once(trained.state_dict()), {**trained.facts(), "class": trained.module}
    return (lambda file: write_safetensors(file, tensors, about),)
