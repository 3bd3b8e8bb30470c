"""Parameters by the names that they have in a PyTorch class: nnU-Net's own, or that of the written module."""

from __future__ import annotations

from collections.abc import Mapping

from znnpy.interop.export.computation import Tensor
from znnpy.interop.export.description import described
from znnpy.interop.nnunet import recognition
from znnpy.network.types import Network


def state_dict(network: Network, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return all parameters, with the keys and axis orders of the class that the network is in PyTorch.

    A net that is nnU-Net's PlainConvUNet or ResidualEncoderUNet, coarser outputs included, has the keys of that class,
    those that stand for one parameter with one array; any other those of the module that `--format torch` writes.
    Filters (out, in / groups, z, y, x), transposed ones (in, out / groups, z, y, x), others (channels,), in their
    dtypes. Raises ExportError for kinds of edges and functions that PyTorch does not have.
    """
    architecture = recognition.recognised(network)
    if architecture is not None:
        return recognition.state_dict(architecture, network, parameters)
    return dict(described(network, parameters, {}).tensors)


def each_once(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors by the first of their names."""
    first: dict[int, str] = {}
    for name, array in tensors.items():
        first.setdefault(id(array), name)
    return {name: tensors[name] for name in first.values()}
