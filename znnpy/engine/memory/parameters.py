"""Parameters in the arena, packed in the order in which kernels read them, and their conversion from and to arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from math import prod

import numpy as np
from znnpy_kernels.direct.packed_filters import (
    output_groups,
    pack_filters,
    packed_size,
    unpack_filters,
)
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.arrays import Floats
from znnpy.engine.memory.filter_file import filed
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.regions import Buffer, BufferPart, Filled, Name, Region, Use
from znnpy.network.parameters import fixed, learned, parameter_shapes
from znnpy.network.types import Edge
from znnpy.plan.cost import Band, convolutions, is_depthwise

VALUES = Use("parameters")
READ = Use("filters read for a layer")
STANDARDIZED = Use("standardised filters")
PARAMETER_GRADIENTS = Use("gradients of parameters", "parameters")
STATES = Use("states of the optimiser", "parameters")


@dataclass(frozen=True)
class Piece:
    """The filters between one group of output channels and one block of input channels: [z][y][x][input][lane].

    Contiguous; offsets and sizes in floats. `width`: lanes of outputs; `inputs`: real input channels.
    """

    start: int
    floats: int
    first_output: int
    width: int
    first_input: int
    inputs: int


@dataclass(frozen=True)
class Parameter:
    """The filters of an edge, or one float for each channel of a node: buffers of values, gradient and states.

    All have `floats` float32 in the same packed order, cut into `pieces`, which dependency regions count. Padding is 0
    and stays 0. `groups`: filters between channels of different groups are 0 as well, and users have
    (out, in / groups) of `shape`; with `bands` only filters within these are there, band by band. Without `learned`
    there is neither gradient nor state; without states where another rank updates it. `exchanged`: filters of a
    transposed convolution are packed with inputs and outputs exchanged, as those of the convolution that is its
    transpose. `values_buffer`: what passes read; `stored`: what users see and updates change. They differ only where
    passes read standardised filters. `place`: their number among those in a `FilterFile`, from which they are read to
    `values_buffer` in each pass; None: in memory.
    """

    name: str
    shape: tuple[int, ...]
    floats: int
    source_lanes: int
    pieces: tuple[Piece, ...]
    values_buffer: Buffer
    stored: Buffer
    gradient_buffer: Buffer
    states: tuple[int, ...]
    learned: bool = True
    exchanged: bool = False
    groups: int = 1
    bands: tuple[Band, ...] = ()
    place: int | None = None

    @property
    def packed_shape(self) -> tuple[int, ...]:
        """The shape as filters are packed: outputs, inputs, z, y, x; exchanged for transposed convolutions."""
        return _exchanged(self.shape) if self.exchanged else self.shape

    @property
    def values(self) -> int:
        """Address of the values."""
        return self.values_buffer.address

    @property
    def gradient(self) -> int:
        """Address of the gradient; 0 where there is none."""
        return self.gradient_buffer.address

    @property
    def standardized(self) -> bool:
        """Whether passes read standardised filters, not the stored ones."""
        return self.stored is not self.values_buffer

    @property
    def is_filters(self) -> bool:
        """Whether these are filters: weight decay applies to them alone."""
        return len(self.shape) == 5

    def values_region(self, low: int = 0, high: int | None = None) -> Region:
        """Return the region of pieces low..high of the values."""
        return self.values_buffer.region(low, len(self.pieces) if high is None else high)

    def stored_region(self, low: int, high: int) -> Region:
        """Return the region of pieces low..high of what is stored."""
        return self.stored.region(low, high)

    def gradient_region(self, low: int = 0, high: int | None = None, strand: int = -1) -> Region:
        """Return the region of pieces low..high of the gradient."""
        count = len(self.pieces) if high is None else high
        return self.gradient_buffer.region(low, count, strand=strand)

    def piece_of(self, output: int, source: int) -> int:
        """Return the index of the piece that holds the filter from one input to one output channel."""
        blocks = -(-self.packed_shape[1] // self.source_lanes)
        # Pieces: groups of two vectors of outputs, and in each the blocks of inputs.
        return output // (2 * LANES) * blocks + source // self.source_lanes

    def offset(self, output: int, source: int) -> int:
        """Return the offset, in floats, of tap (0, 0, 0) of one filter."""
        piece = self.pieces[self.piece_of(output, source)]
        # [tap][input][lane]: inputs lie `width` floats apart, outputs side by side.
        inside = (source - piece.first_input) * piece.width + output - piece.first_output
        return piece.start + inside

    def tap_strides(self, output: int, source: int) -> tuple[int, int, int]:
        """Return the distances between taps along z, y, x, in floats."""
        piece = self.pieces[self.piece_of(output, source)]
        # From one tap to the next lie all inputs of the piece.
        step = piece.inputs * piece.width
        return self.shape[3] * self.shape[4] * step, self.shape[4] * step, step

    def part(self, first: int, pieces: tuple[Piece, ...], shape: tuple[int, ...]) -> Parameter:
        """Return the parameter of this shape that lies from piece `first` on, in `pieces` that count from there."""
        floats = pieces[-1].start + pieces[-1].floats

        def own(buffer: Buffer) -> BufferPart:
            place = buffer.address + 4 * self.pieces[first].start
            return BufferPart(
                buffer.name, place, floats, buffer.filled, whole=buffer, first=first, count=len(pieces)
            )  # fmt: skip

        values = own(self.values_buffer)
        return replace(
            self,
            shape=shape,
            floats=floats,
            pieces=pieces,
            values_buffer=values,
            stored=own(self.stored) if self.standardized else values,
            gradient_buffer=own(self.gradient_buffer),
            bands=(),
        )

    def band(self, number: int) -> Parameter:
        """Return the filters of one band, as those of a layer of its channels."""
        own = self.bands[number]
        # All bands but the last have as many pieces as the first.
        first = number * len(_band_pieces(self, self.bands[0]))
        shape = own.outputs, own.inputs, *self.shape[2:]
        return self.part(first, _band_pieces(self, own), shape)

    def blocks(self, first: int, channels: int) -> Parameter:
        """Return what belongs to `channels` channels of a node from block `first` on."""
        return self.part(first, _pieces((channels,), LANES), (channels,))


def reserve_parameters(
    arena: Arena, layout: Layout, states: int, frozen: frozenset[str] = frozenset()
) -> dict[str, Parameter]:
    """Reserve parameters by name, with gradients and `states` buffers for those that are trained.

    `frozen`: those that no task writes, beside those that the network itself does not let learn.
    """
    frozen = frozen | fixed(layout.network)
    found, moving = {}, set(learned(layout.network) if layout.training else ())
    transposed = {e.name for e in layout.network.edges if e.kind == "conv_transpose"}
    groups = {e.name: _groups(layout, e) for e in layout.network.edges}
    bands = {e.name: layout.bands(e) for e in convolutions(layout.network)}
    standardized = {e.name for e in layout.network.edges if e.weight_standardization}
    in_file, places = filed(layout), count()
    for name, shape in parameter_shapes(layout.network).items():
        exchanged = name in transposed
        # Packed as the dense layer that computes it, with zeros between groups.
        if groups.get(name, 1) > 1:
            shape = (shape[0], shape[1] * groups[name], *shape[2:])
        lanes = _source_lanes(layout, name) if len(shape) == 5 else LANES
        own = bands.get(name, ())
        packed = _exchanged(shape) if exchanged else shape
        pieces = _banded(packed, own, exchanged) if own else _pieces(packed, lanes)
        floats = pieces[-1].start + pieces[-1].floats
        filled = Filled.OUTSIDE if name in frozen else Filled.EARLIER
        place = next(places) if name in in_file else None
        if place is None:
            stored = values = _kept(arena, Name(VALUES, name), floats, filled)
        else:
            stored = values = arena.buffer(Name(READ, name), floats, shared=True)
        # A second buffer: the stored filters must survive for the update.
        if name in standardized:
            values = _kept(arena, Name(STANDARDIZED, name), floats)
        # Buffers of the step: unlike values, gradients are filled anew by each update.
        gradient = Buffer(
            Name(PARAMETER_GRADIENTS, name),
            arena.reserve(floats, PARAMETER_GRADIENTS) if name in moving else 0,
            floats,
        )
        found[name] = Parameter(
            name, shape, floats, lanes, pieces, values, stored, gradient, (), name in moving,
            exchanged, groups.get(name, 1), own, place,
        )  # fmt: skip
    return {name: _with_states(arena, parameter, states) for name, parameter in found.items()}


def gradient_slots(
    arena: Arena, parameters: Mapping[str, Parameter], slots: int
) -> list[dict[str, Parameter]]:
    """Return by slot the parameters with a gradient buffer of the slot's own (slot 0: the given one)."""
    found = [dict(parameters)]
    # Gradients alone have slots; values and states are there once.
    for slot in range(1, slots):
        found.append(dict(parameters))
        for name, parameter in parameters.items():
            if parameter.learned:
                own = Name(PARAMETER_GRADIENTS, name, (slot,))
                gradient = arena.buffer(own, parameter.floats)
                found[slot][name] = replace(parameter, gradient_buffer=gradient)
    return found


def _with_states(arena: Arena, parameter: Parameter, states: int) -> Parameter:
    """Add the optimiser's states, which lie behind all else: ranks without them have the same addresses before."""
    count = states if parameter.learned else 0
    own = tuple(arena.reserve(parameter.floats, STATES) for _ in range(count))
    return replace(parameter, states=own)


def _kept(arena: Arena, name: Name, floats: int, filled: Filled = Filled.EARLIER) -> Buffer:
    # Filled by an earlier step, or by Python before the first one.
    return Buffer(name, arena.reserve(floats, name.use), floats, filled)


def _groups(layout: Layout, edge: Edge) -> int:
    """Return the groups of an edge whose filters are packed with zeros between groups; 1 for depthwise ones."""
    return 1 if is_depthwise(edge, layout.network) else edge.groups


def pack_parameter(parameter: Parameter, array: Floats, target: Floats) -> None:
    """Write an array, as users have it, in packed order: `target` has `floats` float32, of which all are set."""
    if not parameter.is_filters:
        target[: array.size] = array
        target[array.size :] = 0
        return
    start = 0
    for part in _within(_apart(array, parameter.groups), parameter.bands):
        own = part.swapaxes(0, 1) if parameter.exchanged else part
        outputs, inputs, *size = own.shape
        end = start + packed_size(outputs, inputs, prod(size))
        pack_filters(own, parameter.source_lanes, target[start:end])
        start = end


def unpack_parameter(parameter: Parameter, packed: Floats) -> Floats:
    """Return a packed buffer as users have it, in a new array."""
    if parameter.is_filters:
        filters = np.zeros(parameter.shape, np.float32)
        start = 0
        for part in _within(filters, parameter.bands):
            own = part.swapaxes(0, 1) if parameter.exchanged else part
            outputs, inputs, z, y, x = own.shape
            end = start + packed_size(outputs, inputs, z * y * x)
            shape = outputs, inputs, z, y, x
            own[...] = unpack_filters(packed[start:end], shape, parameter.source_lanes)
            start = end
        return _together(filters, parameter.groups)
    return packed[: parameter.shape[0]].copy()


def _apart(filters: Floats, groups: int) -> Floats:
    """Return filters (out, in / groups, z, y, x) as (out, in, z, y, x), 0 between channels of different groups."""
    if groups == 1:
        return filters
    outputs, inputs = filters.shape[:2]
    whole = np.zeros((outputs, inputs * groups, *filters.shape[2:]), filters.dtype)
    for part, own in zip(_diagonal(whole, groups), np.split(filters, groups), strict=True):
        part[...] = own
    return whole


def _together(filters: Floats, groups: int) -> Floats:
    """Return filters (out, in, z, y, x) as (out, in / groups, z, y, x)."""
    return np.concatenate(_diagonal(filters, groups)) if groups > 1 else filters


def _diagonal(filters: Floats, groups: int) -> list[Floats]:
    """Return views of the filters between channels of the same group."""
    outputs, inputs = (count // groups for count in filters.shape[:2])
    return [
        filters[k * outputs : (k + 1) * outputs, k * inputs : (k + 1) * inputs]
        for k in range(groups)
    ]


def _within(filters: Floats, bands: tuple[Band, ...]) -> list[Floats]:
    """Return views of the filters (out, in, z, y, x) within each band; without bands, all of them."""
    if not bands:
        return [filters]
    return [
        filters[it.first_output : it.first_output + it.outputs, it.first_input : it.first_input + it.inputs]
        for it in bands
    ]  # fmt: skip


def _exchanged(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape with its first two axes exchanged."""
    return shape[1], shape[0], *shape[2:]


def _source_lanes(layout: Layout, edge: str) -> int:
    """Return the lanes of the tensor that an edge's convolution reads: 1 if it is planar.

    Of a transposed one that is the convolution that goes the other way.
    """
    found = next(e for e in layout.network.edges if e.name == edge)
    return layout.lanes(found.target if found.kind == "conv_transpose" else found.source)


def _banded(shape: tuple[int, ...], bands: tuple[Band, ...], exchanged: bool) -> tuple[Piece, ...]:
    """Return the pieces of all bands of packed filters, one band behind the other."""
    found: list[Piece] = []
    for band in bands:
        ends = (band.first_output, band.outputs), (band.first_input, band.inputs)
        (output, outputs), (source, inputs) = reversed(ends) if exchanged else ends
        start = found[-1].start + found[-1].floats if found else 0
        for piece in _pieces((outputs, inputs, *shape[2:]), LANES):
            found.append(
                replace(
                    piece,
                    start=start + piece.start,
                    first_output=output + piece.first_output,
                    first_input=source + piece.first_input,
                )
            )
    return tuple(found)


def _band_pieces(parameter: Parameter, band: Band) -> tuple[Piece, ...]:
    """Return the pieces of a band's filters, counted from its own beginning."""
    shape = band.outputs, band.inputs, *parameter.shape[2:]
    return _pieces(_exchanged(shape) if parameter.exchanged else shape, LANES)


@lru_cache(maxsize=64)  # layers of one shape share them: a deep net has tens of thousands
def _pieces(shape: tuple[int, ...], source_lanes: int) -> tuple[Piece, ...]:
    if len(shape) == 1:
        # One float a channel, padded to whole vectors; a piece is a block, as tasks of nodes take
        # blocks.
        blocks = range(-(-shape[0] // LANES))
        return tuple(Piece(b * LANES, LANES, b * LANES, LANES, 0, 1) for b in blocks)
    outputs, inputs, *size = shape
    pieces: list[Piece] = []
    start = first = 0
    for vectors in output_groups(outputs):
        width = vectors * LANES
        for source in range(0, inputs, source_lanes):
            count = min(source_lanes, inputs - source)
            floats = prod(size) * count * width
            pieces.append(Piece(start, floats, first, width, source, count))
            start += floats
        first += width
    # The kernels compute addresses by `packed_size` and its relatives; both must agree on the
    # layout.
    assert start == packed_size(outputs, inputs, prod(size))
    return tuple(pieces)
