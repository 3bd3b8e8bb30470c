"""Addresses that emitters share: tensors, parameters, staged data, scratch; all in one arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.arena import Arena, Memory, Replica
from znnpy.engine.memory.feature_maps import FeatureMaps, Layout, first_of, reserve_feature_maps
from znnpy.engine.memory.parameters import Parameter, gradient_slots, reserve_parameters
from znnpy.engine.memory.regions import SMALL, Buffer, Filled, Name, Region, Use
from znnpy.engine.memory.staging import Staging, reserve_staging
from znnpy.engine.memory.tensors import Tensor, grown, new_tensor
from znnpy.layers.types import BARE
from znnpy.network.types import Edge, Node

CONCAT_GRADIENTS = Use("gradients split", "gradients")
FRAMED_GRADIENTS = Use("gradients of images with frames", "gradients")
WORKERS = Use("scratch of workers")
PARTIAL_GRADIENTS = Use("partial filter gradients")
BIAS_PARTIALS = Use("partial bias gradients", SMALL)

STEPS = 2  # an even and an odd step in flight


class _Asked(NamedTuple):
    """What a buffer was asked for as; who asks again must ask for the same."""

    floats: int
    shared: bool = False
    filled: Filled = Filled.STEP

    def __str__(self) -> str:
        memory = "shared" if self.shared else "own"
        return f"{self.floats} floats of {memory} memory that are filled by {self.filled.value}"


class _Set(NamedTuple):
    """The images of one microbatch that is under way, and where it has its other buffers."""

    replica: Replica
    maps: FeatureMaps


@dataclass
class Build:
    """One arena and what lies in it, as one microbatch sees it. Who asks twice by one name gets the same buffer.

    `of` says what others see; all share what is asked for. `slot` is where the microbatch leaves its gradients, `pairs`
    are slots (into, from) that can be added once it has.
    """

    arena: Arena
    replica: Replica
    layout: Layout
    maps: FeatureMaps
    parameters: dict[str, Parameter]
    slots: list[dict[str, Parameter]]
    sets: list[_Set]
    staging: list[list[Staging]]
    parity: int = 0
    dropping: bool = True
    workspace: int = (
        0  # floats of each worker's scratch; 0: every size that is asked for has its own
    )
    microbatch: int = 0
    slot: int = 0
    pairs: Sequence[tuple[int, int]] = ()
    _buffers: dict[Name, tuple[Buffer, _Asked]] = field(default_factory=dict)
    _tensors: dict[Name, Tensor] = field(default_factory=dict)

    @classmethod
    def new(cls, arena: Arena, layout: Layout, states: int, workspace: int = 0) -> Build:
        """Reserve everything but scratch; `states` buffers per parameter for the optimiser."""
        parameters = reserve_parameters(arena, layout, states)
        slots = gradient_slots(arena, parameters, layout.slots)
        replicas = [Replica(arena, number) for number in range(layout.replicas)]
        sets = [_Set(replica, reserve_feature_maps(replica, layout)) for replica in replicas]
        staging = [
            reserve_staging(arena, layout, parity)
            for parity in range(STEPS if layout.training else 1)
        ]
        return cls(
            arena, replicas[0], layout, sets[0].maps, parameters, slots, sets, staging,
            workspace=workspace,
        )  # fmt: skip

    def of(self, microbatch: int, slot: int, pairs: Sequence[tuple[int, int]] = ()) -> Build:
        """What one of the microbatches that are computed here sees, counted from 0."""
        replica, images = self.sets[microbatch % len(self.sets)]
        return replace(
            self,
            replica=replica,
            maps=images,
            parameters=self.slots[slot],
            microbatch=microbatch,
            slot=slot,
            pairs=pairs,
        )

    @property
    def staged(self) -> Staging:
        """Inputs, targets and results of the microbatch and step being emitted."""
        return self.staging[self.parity][self.microbatch]

    @property
    def again(self) -> Sequence[Name]:
        """Buffers that are dropped after the forward pass and made once more for the backward pass."""
        return self.arena.again(self.replica.number)

    def sample(self, batch: int) -> int:
        """The number within the whole update of one of the microbatch's samples."""
        return self.layout.numbers[self.microbatch] * self.layout.batch + batch

    def value(self, node: str) -> Tensor:
        """A node's images: its activation, or the staged ones of inputs that only feed convolutions."""
        packed = self.maps.activations.get(node)
        return packed if packed is not None else self.staged.inputs[node]

    @property
    def moving(self) -> list[Parameter]:
        """The parameters that updates move by their gradients."""
        return [parameter for parameter in self.parameters.values() if parameter.learned]

    def summed(self, node: str) -> Tensor:
        """Where a node's edges leave their sum: its values, unless its gradient needs the sum."""
        return self.maps.contributions[first_of(self.layout.network.incoming(node)).name]

    def seen(self, edge: Edge) -> Tensor:
        """What a convolution reads: its source's images, and what it sees round them."""
        padding = self.layout.padding(edge)
        if padding == BARE:
            return self.value(edge.source)
        copy = self.maps.copies.get((edge.source, edge.border))
        return (copy or self.value(edge.source)).framed(padding)

    def passes(self, tensor: Tensor) -> bool:
        """Whether others have a tensor's memory before and after it is used."""
        return tensor.buffer.name in self.arena.shared

    def scratch(self, name: Name, floats: int) -> Buffer:
        """The buffer of a name, the same for both steps; ValueError if it was another one before."""
        return self._buffer(self.replica, name, _Asked(floats))

    def shared(self, name: Name, floats: int) -> Buffer:
        """The same for a buffer that is used within a step, from its first task to its last."""
        return self._buffer(self.replica, name, _Asked(floats, shared=True))

    def kept(self, name: Name, floats: int) -> Buffer:
        """The same for what passes need of filters, and find as an earlier step or graph left it."""
        return self._buffer(self.arena, name, _Asked(floats, filled=Filled.EARLIER))

    def common(self, name: Name, floats: int) -> Buffer:
        """The same for what all microbatches have in common, within a step."""
        return self._buffer(self.arena, name, _Asked(floats))

    def added_up(self, name: Name, floats: int) -> Buffer:
        """The same for what is added up over microbatches: that of the slot."""
        buffers = [
            self._buffer(self.arena, name._replace(which=(*name.which, slot)), _Asked(floats))
            for slot in range(len(self.slots))
        ]
        return buffers[self.slot]

    def _buffer(self, memory: Memory, name: Name, asked: _Asked) -> Buffer:
        floats, shared, filled = asked
        if isinstance(memory, Replica):
            name = name.of(memory.number)
        if name not in self._buffers:
            buffer = memory.buffer(name, floats, shared=shared, filled=filled)
            self._buffers[name] = buffer, asked
        found, before = self._buffers[name]
        if before != asked:
            raise ValueError(f"{name}: asked for as {asked}, and before as {before}")
        return found

    def partial_gradients(self, edge: str, count: int) -> list[Buffer]:
        """Room for `count` gradients of an edge's filters that are to be added up, by pieces.

        The first is where their sum belongs.
        """
        parameter = self.parameters[edge]
        return [parameter.gradient_buffer] + [
            self.shared(Name(PARTIAL_GRADIENTS, edge, (leaf,)), parameter.floats)
            for leaf in range(1, count)
        ]

    def worker_scratch(self, floats: int) -> dict[str, int]:
        """Words `scratch` and `scratch_worker` of room that each worker has for itself."""
        self.arena.most_scratch = max(self.arena.most_scratch, -(-floats // 64) * 64)
        stride = self.workspace or -(-floats // 64) * 64
        whole = _Asked(stride * self.layout.workers)
        room = self._buffer(self.arena, Name(WORKERS, which=(stride,)), whole)
        return {"scratch": room.address, "scratch_worker": stride}

    def concat_gradient(self, edge: str) -> Tensor:
        """Gradient of what one edge brought to a concat node."""
        key = Name(CONCAT_GRADIENTS, edge).of(self.replica.number)
        if key not in self._tensors:
            own = self.maps.contributions[edge]
            self._tensors[key] = new_tensor(
                self.replica, key, own.batch, own.channels, own.shape, cut=own.cut, shared=True
            )
        return self._tensors[key]

    def back(self, edge: Edge) -> Tensor:
        """Where a convolution leaves its data gradient: what it brings back, or what that is folded of."""
        own = self.maps.backward[edge.name]
        if not self.layout.folded(edge):
            return own
        key = Name(FRAMED_GRADIENTS, edge.name).of(self.replica.number)
        if key not in self._tensors:
            shape = grown(own.shape, self.layout.padding(edge))
            self._tensors[key] = new_tensor(
                self.replica,
                key,
                own.batch,
                own.channels,
                shape,
                cut=own.cut,
                lanes=own.lanes,
                shared=True,
            )
        return self._tensors[key]

    def bias_address(self, node: str, image: int) -> int:
        """Address of the biases from one image on; 0 when the node has none."""
        return self.values_address(node, image)

    def bias_reads(self, node: str) -> list[Region]:
        """What a task that uses the bias reads."""
        return self.values_read(node)

    def values_address(self, parameter: str, image: int) -> int:
        """Address of what a node keeps for its images, from one image on; 0 when it does not."""
        found = self.parameters.get(parameter)
        return found.values + 4 * image if found else 0

    def values_read(self, *parameters: str) -> list[Region]:
        """What a task reads that uses these, where they are kept."""
        found = (self.parameters.get(name) for name in parameters)
        return [parameter.values_region() for parameter in found if parameter]

    def bias_partials(self, node: Node, first: int, count: int) -> Buffer | None:
        """Room for `count` vectors of partial bias gradients; None when the node has no bias.

        `first`: the block, or planar image, from which on they count. Regions count what tasks leave.
        """
        if node.name not in self.parameters:
            return None
        return self.scratch(Name(BIAS_PARTIALS, node.name, (first, count)), count * LANES)
