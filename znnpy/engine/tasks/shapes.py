"""The numbers that shape a node's function, as words of the tasks that apply it or its gradient."""

from __future__ import annotations

from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.build import Build
from znnpy.engine.memory.regions import Region
from znnpy.network.types import Node


def shape_words(build: Build, node: Node, block: int) -> dict[str, float]:
    """Words of a task for one block of images."""
    return {
        "slope": node.slope,
        "amplitude": node.amplitude,
        "gain": node.gain,
        "slopes": build.values_address(f"{node.name}.slopes", LANES * block),
    }


def slopes_read(build: Build, node: Node) -> list[Region]:
    """What such a task reads."""
    return build.values_read(f"{node.name}.slopes")
