"""Kernels of the functions of nodes, found by name."""

from __future__ import annotations

from collections.abc import Mapping

from znnpy_kernels.machine.abi import Kernel

from znnpy.errors import NetworkError
from znnpy.network.types import Node


def kernel_of(kernels: Mapping[str, Kernel], function: str, node: Node) -> Kernel:
    """That of a node's function; NetworkError for a function that float64 alone knows."""
    if function not in kernels:
        behind = " behind a norm" if node.norm else ""
        what = f"node '{node.name}': {function} has no kernel{behind} in float32"
        raise NetworkError(f"{what}; precision float64 runs it")
    return kernels[function]
