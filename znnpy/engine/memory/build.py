"""Addresses that emitters share: tensors, parameters, staged data, scratch; all in one arena."""

from __future__ import annotations

from dataclasses import dataclass, field

from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.images import Images, Layout, reserve_images
from znnpy.engine.memory.parameters import Parameter, reserve_parameters
from znnpy.engine.memory.regions import Region
from znnpy.engine.memory.staging import Staging, reserve_staging
from znnpy.engine.memory.tensors import Tensor, new_tensor
from znnpy.network.types import Node
from znnpy.plan import ALGORITHMS

STEPS = 2  # an even and an odd step in flight
# What scratch is for, by the first word of its key.
SCRATCH = {
    "worker": "scratch of workers",
    "taps": "taps of maxima",
    "partial gradient": "partial filter gradients",
    **{key: use for one in ALGORITHMS.values() for key, use in one.traits.scratch.items()},
}


@dataclass
class Build:
    """One arena and what lies in it. Asking twice for the same scratch gives the same address."""

    arena: Arena
    layout: Layout
    images: Images
    parameters: dict[str, Parameter]
    staging: list[Staging]
    copy: int = 0
    dropping: bool = True
    workspace: int = (
        0  # floats of each worker's scratch; 0: every size that is asked for has its own
    )
    most_scratch: int = 0  # floats that a worker was asked for at most
    _scratch: dict[tuple[object, ...], int] = field(default_factory=dict)
    _tensors: dict[tuple[object, ...], Tensor] = field(default_factory=dict)

    @classmethod
    def new(cls, arena: Arena, layout: Layout, states: int, workspace: int = 0) -> Build:
        """Reserve everything but scratch; `states` buffers per parameter for the optimiser."""
        parameters = reserve_parameters(arena, layout, states)
        images = reserve_images(arena, layout)
        staging = [
            reserve_staging(arena, layout, copy) for copy in range(STEPS if layout.training else 1)
        ]
        return cls(arena, layout, images, parameters, staging, workspace=workspace)

    @property
    def staged(self) -> Staging:
        """Inputs, targets and results of the step being emitted."""
        return self.staging[self.copy]

    def value(self, node: str) -> Tensor:
        """A node's images: its activation, or the staged ones of inputs that only feed convolutions."""
        packed = self.images.activations.get(node)
        return packed if packed is not None else self.staged.inputs[node]

    def scratch(self, key: tuple[object, ...], floats: int) -> int:
        """Address of a buffer known by its key, the same for both steps."""
        if key not in self._scratch:
            self._scratch[key] = self.arena.reserve(floats, _use(key))
        return self._scratch[key]

    def shared(self, key: tuple[object, ...], floats: int) -> int:
        """The same for a buffer that is used within a step, from its first task to its last."""
        if key not in self._scratch:
            self._scratch[key] = self.arena.share(key, floats, _use(key))
        return self._scratch[key]

    def worker_scratch(self, floats: int) -> dict[str, int]:
        """Words `scratch` and `scratch_worker` of room that each worker has for itself."""
        self.most_scratch = max(self.most_scratch, -(-floats // 64) * 64)
        stride = self.workspace or -(-floats // 64) * 64
        address = self.scratch(("worker", stride), stride * self.layout.workers)
        return {"scratch": address, "scratch_worker": stride}

    def concat_gradient(self, edge: str) -> Tensor:
        """Gradient of what one edge brought to a concat node."""
        key = ("gradients", "concat", edge)
        if key not in self._tensors:
            own = self.images.contributions[edge]
            self._tensors[key] = new_tensor(
                self.arena, key, own.batch, own.images, own.shape, cut=own.cut, shared=True
            )
        return self._tensors[key]

    def output_gradient(self, node: Node) -> Tensor | None:
        """Where the loss leaves the gradient by an output node's values; None if nobody needs it.

        That is the node's gradient, which its function then changes in place; a softmax reads all
        channels while it writes and has a tensor of its own.
        """
        own = self.images.gradients.get(node.name)
        if own is None or node.function != "softmax":
            return own
        key = ("gradients", "softmax", node.name)
        if key not in self._tensors:
            self._tensors[key] = new_tensor(
                self.arena, key, own.batch, own.images, own.shape, cut=own.cut, shared=True
            )
        return self._tensors[key]

    def bias_address(self, node: str, image: int) -> int:
        """Address of the biases from one image on; 0 when the node has none."""
        found = self.parameters.get(node)
        return found.values + 4 * image if found else 0

    def bias_reads(self, node: str) -> list[Region]:
        """What a task that uses the bias reads."""
        found = self.parameters.get(node)
        return [found.values_region()] if found else []

    def bias_partials(self, node: Node, first: int, count: int) -> int:
        """Room for `count` vectors of partial bias gradients; 0 when the node has no bias.

        `first`: the block, or planar image, from which on they count.
        """
        if node.name not in self.parameters:
            return 0
        return self.scratch(("bias partials", node.name, first, count), count * LANES)


def _use(key: tuple[object, ...]) -> str:
    return SCRATCH.get(str(key[0]), "small buffers")
