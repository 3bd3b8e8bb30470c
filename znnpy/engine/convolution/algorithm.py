"""`ConvEmitter`: the functions that a convolution algorithm must have; defaults for those that leave nodes nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from znnpy.engine.convolution.flops import Operations
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step
from znnpy.network.types import Edge, Node
from znnpy.plan import PassName


def finish_forward(step: Step, build: Build, node: Node) -> None:
    """Do nothing: forward passes have written their output."""


def finish_backward(step: Step, build: Build, node: Node) -> None:
    """Do nothing: data gradients have been written."""


def summed_elsewhere(build: Build, edges: tuple[Edge, ...], which: PassName) -> set[str]:
    """Return no edge: each writes an output of its own."""
    return set()


def updates_at_once(step: Step, build: Build, edge: Edge) -> bool:
    """Return False: gradients are left to the update."""
    return False


class ConvEmitter(Protocol):
    """Tasks of conv edges by one algorithm; a package of this room is one."""

    def forward(self, step: Step, build: Build, edge: Edge) -> None:
        """Declare an edge's forward pass: its output, or spectra from which `finish_forward` makes it."""

    def data_gradient(self, step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
        """Declare an edge's data gradient, or spectra from which `finish_backward` makes it."""

    def weight_gradient(self, step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
        """Declare the gradient of an edge's filters, from its source's values and its target's gradient."""

    def updates_at_once(self, step: Step, build: Build, edge: Edge) -> bool:
        """Return whether the tasks of an edge's weight gradient also update its filters, in this step."""

    def derive(self, step: Step, build: Build, edge: Edge) -> None:
        """Declare what forward pass and data gradient need derived from filters, if they run by this algorithm."""

    def operations(
        self, layout: Layout, edge: Edge, passes: Collection[PassName], counted: set[object]
    ) -> Operations:
        """Return the operations of the passes that run by this algorithm, by task, in one update.

        `counted`: keys of shared work that other edges have counted already; new ones are added.
        """

    def finish_forward(self, step: Step, build: Build, node: Node) -> None:
        """Declare what turns the spectra of a node's incoming edges into values."""

    def finish_backward(self, step: Step, build: Build, node: Node) -> None:
        """Declare what turns the spectra of a node's outgoing edges into its gradient."""

    def summed_elsewhere(self, build: Build, edges: tuple[Edge, ...], which: PassName) -> set[str]:
        """Return the edges into or out of one node whose output is already summed into another edge's."""
