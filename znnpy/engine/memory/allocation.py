"""`Build`: the buffers of a network in one arena, by name, as the emitters of tasks ask for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.arena import FIRST, Arena, Memory, Replica, told
from znnpy.engine.memory.feature_maps import FeatureMaps, reserve_feature_maps
from znnpy.engine.memory.filter_file import FILE, words_of
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.parameters import Parameter, gradient_slots, reserve_parameters
from znnpy.engine.memory.regions import SMALL, Buffer, Filled, Name, Region, Use
from znnpy.engine.memory.requests import Outside, Request, RequestKind, Requests
from znnpy.engine.memory.staging import Staging, reserve_staging
from znnpy.engine.memory.tensor_aliases import first_of
from znnpy.engine.memory.tensors import Tensor, grown, new_tensor
from znnpy.layers.types import BARE
from znnpy.network.types import Edge, Node
from znnpy.plan.cost import Band

CONCAT_GRADIENTS = Use("gradients split", "gradients")
FRAMED_GRADIENTS = Use("gradients with frames", "gradients")
ARGUMENTS = Use("arguments of functions", "activations")
WORKERS = Use("scratch of workers")
PARTIAL_GRADIENTS = Use("partial filter gradients")
BIAS_PARTIALS = Use("partial bias gradients", SMALL)
OUTSIDE = Use("addresses of other memory", SMALL)

STEPS = 2  # an even and an odd step in flight: one is staged while the other runs


class _Asked(NamedTuple):
    """The properties that a buffer was asked for with; a second request must have the same."""

    floats: int
    shared: bool = False
    filled: Filled = Filled.STEP

    def __str__(self) -> str:
        memory = "shared" if self.shared else "own"
        return f"{self.floats} floats of {memory} memory that are filled by {self.filled.value}"


class _Set(NamedTuple):
    """The feature maps of one microbatch in flight, and the replica that holds its other buffers."""

    replica: Replica
    maps: FeatureMaps


@dataclass
class Build:
    """One arena and what lies in it, as one microbatch sees it; the same name always gives the same buffer.

    `of` gives the view of another microbatch; all views share the buffers that were asked for. `slot`: where the
    microbatch leaves its gradients; `pairs`: slots (into, from) that can be added once it has. `banded` gives the view
    of one band of a convolution's groups, `band`; -1: of whole layers. `file`: address of what a `FilterFile` says
    of itself, 0 where none is needed. Not thread-safe.
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
    workspace: int = (
        0  # floats of each worker's scratch; 0: every size that is asked for has its own
    )
    microbatch: int = 0
    slot: int = 0
    pairs: Sequence[tuple[int, int]] = ()
    band: int = -1
    file: int = 0
    reserved: int = 0  # buffers that no task has asked for
    _dropping: bool = True
    _asked_dropping: list[bool] = field(default_factory=list)  # of all views
    _buffers: dict[Name, tuple[Buffer, _Asked]] = field(default_factory=dict)
    _tensors: dict[Name, Tensor] = field(default_factory=dict)
    _outside: dict[Request, int] = field(default_factory=dict)

    @classmethod
    def new(
        cls,
        arena: Arena,
        layout: Layout,
        states: int,
        workspace: int = 0,
        frozen: frozenset[str] = frozenset(),
    ) -> Build:
        """Reserve everything except scratch, with `states` buffers per parameter for the optimiser.

        `frozen`: parameters that no task writes.
        """
        # First of all: ranks of one host map each other's parameters, which must lie at the same
        # distances whatever a rank stages (docs/design/distributed.md, "Ranks of one host").
        parameters = reserve_parameters(arena, layout, states, frozen)
        slots = gradient_slots(arena, parameters, layout.slots)
        replicas = [Replica(arena, number) for number in range(layout.replicas)]
        sets = [_Set(replica, reserve_feature_maps(replica, layout)) for replica in replicas]
        staging = [
            reserve_staging(arena, layout, parity)
            for parity in range(STEPS if layout.training else 1)
        ]
        in_file = sum(parameter.place is not None for parameter in parameters.values())
        file = arena.reserve(2 * words_of(in_file), FILE) if in_file else 0
        return cls(
            arena, replicas[0], layout, sets[0].maps, parameters, slots, sets, staging,
            workspace=workspace, file=file, reserved=len(arena.taken),
        )  # fmt: skip

    def told_apart(self) -> Build:
        """Return this build with a number for the workspace, in place of one that is not known yet."""
        return replace(self, workspace=self.arena.take(0, WORKERS, Counter()))

    def requests(self) -> Requests:
        """Return what tasks have asked for; of an arena that tells buffers apart, of a build that is `told_apart`."""
        asked = {buffer.address: name for name, (buffer, _) in self._buffers.items()}
        outside = {address: request for request, address in self._outside.items()}

        def request(name: Name | None, address: int) -> Request:
            if name:
                return Request("shared", name)
            if address == self.workspace:
                return Request("workspace")
            if address in outside:
                return outside[address]
            name = asked[address]
            if name == Name(WORKERS, which=(self.workspace,)):
                return Request("scratch")
            floats, _, filled = self._buffers[name][1]
            return Request("own", name, floats, filled)

        taken = self.arena.taken
        return Requests(
            tuple(bool(name) for name, _ in taken[: self.reserved]),
            tuple(request(*one) for one in taken[self.reserved :]),
        )

    def outside(self, kind: RequestKind, peer: int = 0, address: int = 0) -> int:
        """Return a number for an address outside an arena that tells buffers apart, which `places` is told.

        `peer`, `address`: of another rank's buffer, the rank, and an address in the same buffer here.
        """
        number, inside = told(address) if address else (0, 0)
        request = Request(kind, peer=peer, number=number)
        if request not in self._outside:
            self._outside[request] = self.arena.take(0, OUTSIDE, Counter())
        return self._outside[request] + inside

    def places(self, requests: Requests, outside: Outside) -> NDArray[np.int64]:
        """Reserve what tasks of another build of this layout have asked for; return addresses of buffers by number."""
        found = [address for _, address in self.arena.taken[: self.reserved]]
        own = tuple(bool(name) for name, _ in self.arena.taken[: self.reserved])
        assert own == requests.reserved

        def place(request: Request) -> int:
            kind, name, floats, filled, peer, number = request
            if kind == "workspace":
                return self.workspace
            if kind == "scratch":
                return self.worker_scratch(self.workspace)["scratch"]
            if kind == "mailbox":
                return outside.mailbox
            if kind == "theirs":
                return found[number] + outside.shifts[peer]
            assert name
            if kind == "shared":
                return self.arena.place(name)
            return self._buffer(self.arena, name, _Asked(floats, filled=filled)).address

        for request in requests.later:
            found.append(place(request))
        return np.array(found, np.int64)

    def of(self, microbatch: int, slot: int, pairs: Sequence[tuple[int, int]] = ()) -> Build:
        """Return the view of one of the microbatches that are computed here, counted from 0."""
        # Microbatches take the replicas in turn; two of one replica follow each other, as they
        # write the same buffers.
        replica, maps = self.sets[microbatch % len(self.sets)]
        return replace(
            self,
            replica=replica,
            maps=maps,
            parameters=self.slots[slot],
            microbatch=microbatch,
            slot=slot,
            pairs=pairs,
        )

    def banded(self, edge: Edge) -> list[tuple[Build, Edge, Band]]:
        """Return the views in which each band of a convolution is a layer between parts of both ends; none without."""
        return [
            (self._of_band(edge, number, band), replace(edge, groups=band.groups), band)
            for number, band in enumerate(self.layout.bands(edge))
        ]

    def _of_band(self, edge: Edge, number: int, band: Band) -> Build:
        maps, parameters, tensors = self.maps, dict(self.parameters), dict(self._tensors)
        source = band.first_input // LANES, band.inputs
        target = band.first_output // LANES, band.outputs
        parameters[edge.name] = parameters[edge.name].band(number)
        values = dict(maps.activations)
        for node, part in ((edge.source, source), (edge.target, target)):
            values[node] = values[node].part(*part)
            if node in parameters:
                parameters[node] = parameters[node].blocks(*part)
        backward = dict(maps.backward)
        if edge.name in backward:
            backward[edge.name] = backward[edge.name].part(*source)
            if self.layout.folded(edge):
                key = Name(FRAMED_GRADIENTS, edge.name).of(self.replica.number)
                tensors[key] = self.back(edge).part(*source)
        copies = {key: it.part(*source) for key, it in maps.copies.items() if key[0] == edge.source}
        contributed = {edge.name: maps.contributions[edge.name].part(*target)}
        return replace(
            self,
            layout=self.layout.narrowed(edge, band),
            maps=FeatureMaps(maps.cut, values, copies, contributed, {}, backward),
            parameters=parameters,
            band=number,
            _tensors=tensors,
        )

    @property
    def dropping(self) -> bool:
        """Whether a forward pass is an update's, not a prediction's; for emitters by which it makes a difference."""
        self._asked_dropping.append(self._dropping)
        return self._dropping

    @dropping.setter
    def dropping(self, value: bool) -> None:
        self._dropping = value
        self._asked_dropping.clear()

    @property
    def predicts_alike(self) -> bool:
        """Whether no emitter has asked for `dropping` since it was set: forward passes are the same in updates."""
        return not self._asked_dropping

    @property
    def staged(self) -> Staging:
        """Inputs, targets and results of the microbatch and step being emitted."""
        return self.staging[self.parity][self.microbatch]

    @property
    def again(self) -> Sequence[Name]:
        """Buffers that are dropped after the forward pass and recomputed for the backward pass (rematerialisation)."""
        return self.arena.again(self.replica.number)

    def sample(self, batch: int) -> int:
        """Return the number of one of the microbatch's samples within the whole update."""
        return self.layout.numbers[self.microbatch] * self.layout.batch + batch

    def value(self, node: str) -> Tensor:
        """Return a node's feature map: its activation, or the staged input where that is used in place."""
        # Inputs that are used in place have no activation of their own.
        packed = self.maps.activations.get(node)
        return packed if packed is not None else self.staged.inputs[node]

    @property
    def moving(self) -> list[Parameter]:
        """The parameters that the optimiser changes."""
        return [parameter for parameter in self.parameters.values() if parameter.learned]

    def learns(self, parameter: str) -> bool:
        """Return whether there is a parameter of this name that has a gradient."""
        return parameter in self.parameters and self.parameters[parameter].learned

    def summed(self, node: str) -> Tensor:
        """Return the tensor in which a node's edges are added: its values, unless its gradient needs the sum."""
        # The first edge's output becomes the sum (`converge_forward`).
        return self.maps.contributions[first_of(self.layout.network.incoming(node)).name]

    def seen(self, edge: Edge) -> Tensor:
        """Return what a convolution reads: its source's feature map, with the padding around it if framed."""
        # The frame of the activation serves the first kind of border; others read a copy.
        padding = self.layout.padding(edge)
        if padding == BARE or self.layout.sees_zeros(edge):
            return self.value(edge.source)
        copy = self.maps.copies.get((edge.source, edge.border))
        return (copy or self.value(edge.source)).framed(padding)

    def passes(self, tensor: Tensor) -> bool:
        """Return whether a tensor's memory serves other buffers before and after it."""
        return tensor.buffer.name in self.arena.shared

    def scratch(self, name: Name, floats: int) -> Buffer:
        """Return a replica's buffer of this name, the same for both steps; ValueError if it had another size."""
        return self._buffer(self.replica, self._own(name), _Asked(floats))

    def shared(self, name: Name, floats: int) -> Buffer:
        """Return a replica's buffer that is only needed within a step, so that others may share its memory."""
        return self._buffer(self.replica, self._own(name), _Asked(floats, shared=True))

    def kept(self, name: Name, floats: int) -> Buffer:
        """Return a buffer derived from filters (such as their spectra), filled by an earlier step or graph."""
        return self._buffer(self.arena, self._own(name), _Asked(floats, filled=Filled.EARLIER))

    def common(self, name: Name, floats: int) -> Buffer:
        """Return a buffer that all microbatches of a step have in common."""
        return self._buffer(self.arena, name, _Asked(floats))

    def added_up(self, name: Name, floats: int) -> Buffer:
        """Return a buffer that is summed over microbatches: the one of this microbatch's slot."""
        # All slots are reserved at once: addresses must not depend on which microbatch asks first.
        buffers = [
            self._buffer(self.arena, name._replace(which=(*name.which, slot)), _Asked(floats))
            for slot in range(len(self.slots))
        ]
        return buffers[self.slot]

    def _own(self, name: Name) -> Name:
        """Return the name of a buffer of this band."""
        return name if self.band < 0 else name._replace(which=(*name.which, self.band))

    def _buffer(self, memory: Memory, name: Name, asked: _Asked) -> Buffer:
        floats, shared, filled = asked
        # The same name in two replicas is two buffers; what is common to all keeps number 0.
        if isinstance(memory, Replica):
            name = name.of(memory.number)
        if name not in self._buffers:
            buffer = memory.buffer(name, floats, shared=shared, filled=filled)
            self._buffers[name] = buffer, asked
        found, before = self._buffers[name]
        # A name that means two buffers would let tasks overwrite each other unseen.
        if before != asked:
            raise ValueError(f"{name}: asked for as {asked}, and before as {before}")
        return found

    def partial_gradients(self, edge: str, count: int) -> list[Buffer]:
        """Return `count` buffers for partial gradients of an edge's filters; the first takes their sum."""
        parameter = self.parameters[edge]
        # The sum must end in the gradient, so the first leaf is made there.
        return [parameter.gradient_buffer] + [
            self.shared(Name(PARTIAL_GRADIENTS, edge, (leaf,)), parameter.floats)
            for leaf in range(1, count)
        ]

    def worker_scratch(self, floats: int) -> dict[str, int]:
        """Return the kernel words `scratch` and `scratch_worker`: the scratch of worker 0, and floats to the next."""
        # Rounded to 256 bytes, so that the scratch of two workers shares no cache line.
        self.arena.most_scratch = max(self.arena.most_scratch, -(-floats // 64) * 64)
        # While memory is only counted each size has a room of its own; then all lie in one of the
        # largest size.
        stride = self.workspace or -(-floats // 64) * 64
        # Of a workspace that is told apart no size is known.
        whole = _Asked(0 if self.workspace >= FIRST else stride * self.layout.workers)
        room = self._buffer(self.arena, Name(WORKERS, which=(stride,)), whole)
        return {"scratch": room.address, "scratch_worker": stride}

    def concat_gradient(self, edge: str) -> Tensor:
        """Return the tensor for the gradient of one edge into a concat node."""
        return self._like(self.maps.contributions[edge], Name(CONCAT_GRADIENTS, edge))

    def argument(self, node: str) -> Tensor:
        """Return the tensor in which what a node's function takes is made again for the backward pass."""
        return self._like(self.maps.activations[node], Name(ARGUMENTS, node))

    def _like(self, own: Tensor, name: Name) -> Tensor:
        """Return a tensor of the shape of another, without its frame, reserved when it is first asked for."""
        key = name.of(self.replica.number)
        if key not in self._tensors:
            self._tensors[key] = new_tensor(
                self.replica,
                key,
                own.batch,
                own.channels,
                own.shape,
                cut=own.cut,
                shared=True,
                apart=own.sections > 1,
            )
        return self._tensors[key]

    def back(self, edge: Edge) -> Tensor:
        """Return where a convolution writes its data gradient; with padding to fold, a tensor that includes it."""
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
                apart=own.sections > 1,
            )
        return self._tensors[key]

    def bias_address(self, node: str, channel: int) -> int:
        """Return the address of the biases from one channel on; 0 if the node has none."""
        return self.values_address(node, channel)

    def bias_reads(self, node: str) -> list[Region]:
        """Return the regions that a task reads if it uses the bias."""
        return self.values_read(node)

    def values_address(self, parameter: str, channel: int) -> int:
        """Return the address of a parameter (channels,) from one channel on; 0 if there is no such parameter."""
        found = self.parameters.get(parameter)
        return found.values + 4 * channel if found else 0

    def values_read(self, *parameters: str) -> list[Region]:
        """Return the regions that a task reads if it uses these parameters, of those that exist."""
        found = (self.parameters.get(name) for name in parameters)
        return [parameter.values_region() for parameter in found if parameter]

    def bias_partials(self, node: Node, first: int, count: int) -> Buffer | None:
        """Return a buffer for `count` vectors of partial bias gradients; None if the node has no bias that learns.

        `first`: the channel block, or planar channel, of the first vector. Regions count vectors.
        """
        if not self.learns(node.name):
            return None
        return self.scratch(Name(BIAS_PARTIALS, node.name, (first, count)), count * LANES)
