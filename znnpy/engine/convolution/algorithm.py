"""What an algorithm must do to be one: tasks of all passes of a conv edge.

What is left to do at nodes after passes that leave images: nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from znnpy.engine.convolution.flops import Operations
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.feature_maps import Layout
from znnpy.engine.memory.tensors import Tensor
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


class ConvEmitter(Protocol):
    """Tasks of conv edges by one algorithm; a package of this room is one."""

    def forward(self, step: Step, build: Build, edge: Edge) -> None:
        """What an edge brings to its target: images, or what `finish_forward` makes images of."""

    def data_gradient(self, step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
        """What an edge brings back to its source, by its target's gradient; `finish_backward` as above."""

    def weight_gradient(self, step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
        """Gradient of an edge's filters, from its source's images and its target's gradient."""

    def derive(self, step: Step, build: Build, edge: Edge) -> None:
        """What forward pass and data gradient, if by this algorithm, need of filters beside themselves."""

    def operations(
        self, layout: Layout, edge: Edge, passes: Collection[PassName], counted: set[object]
    ) -> Operations:
        """Operations of the passes that run so, by task, in one update.

        `counted`: what edges share, whatever names it, and others have counted.
        """

    def finish_forward(self, step: Step, build: Build, node: Node) -> None:
        """Images of what the node's incoming edges brought by this algorithm."""

    def finish_backward(self, step: Step, build: Build, node: Node) -> None:
        """The same of the gradients that its outgoing edges brought back."""

    def summed_elsewhere(self, build: Build, edges: tuple[Edge, ...], which: PassName) -> set[str]:
        """Edges into or out of one node whose contribution lies in another's, by this algorithm."""
