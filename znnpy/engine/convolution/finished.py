"""What is left to do at nodes after passes that leave images: nothing."""

from __future__ import annotations

from znnpy.engine.memory.build import Build
from znnpy.engine.tasks.step import Step
from znnpy.network.types import Edge, Node
from znnpy.plan import PassName


def finish_forward(step: Step, build: Build, node: Node) -> None:
    """Nothing: incoming edges have brought images."""


def finish_backward(step: Step, build: Build, node: Node) -> None:
    """Nothing: outgoing edges have brought gradients back."""


def summed_elsewhere(build: Build, edges: tuple[Edge, ...], which: PassName) -> set[str]:
    """None: every edge brings images of its own."""
    return set()
