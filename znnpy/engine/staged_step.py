"""`StagedStep`: the staging of even or odd steps, which Python fills before a release and reads after the loss."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from struct import Struct

import numpy as np

from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.arrays import ByName, Floats
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.staging import HYPER_WORDS, NUMBERS, Staging
from znnpy.engine.memory.views import view_of
from znnpy.engine.tasks.step import added_pairs
from znnpy.network.objectives import Objectives

Pairs = dict[str, tuple[float, float]]
"""Two numbers by output: loss and error, or the weights that each is a mean of."""

BLANK = (0.0,) * HYPER_WORDS
MOST = float(np.finfo(np.float32).max)


class StagedStep:
    """Arrays over the staging of one parity, made once: while Python works between steps, a core may run no tasks.

    Writes may happen while no step of this parity runs. Arrays of samples are (microbatches x batch, channel, z, y, x).
    """

    def __init__(
        self,
        arena: Arena,
        layout: Layout,
        staging: Sequence[Staging],
        losses: Objectives,
        clip_norm: float | None,
    ) -> None:
        shared = staging[0]
        self._batch, self._losses = layout.batch, losses
        self._parts = [_Part(arena, layout, own) for own in staging]
        # In the order of memory; arrays may come in any other.
        self._outputs = list(shared.normalizers)
        self._numbers = _Packed(arena, shared.hyper, f"{NUMBERS}{2 * len(shared.normalizers)}f")
        # Kept alive until the next step of this parity.
        self._borrowed: tuple[ByName, ...] = ()
        self.borrows = False
        arena.view(shared.seed, (1,), "i8")[0] = layout.seed
        arena.view(shared.max_norm, (1,), "f8")[0] = inf if clip_norm is None else clip_norm
        for name, address in shared.classes.items():
            channels, objective = layout.network.node(name).channels, losses[name]
            arena.view(address, (channels,))[...] = objective.class_weights(channels)
            table = objective.loss.table(objective.keys)
            arena.view(shared.tables[name], (len(table),), "i8")[...] = table

    @property
    def microbatches(self) -> int:
        """How many there are."""
        return len(self._parts)

    def inputs(self, microbatch: int = 0) -> dict[str, Floats]:
        """Return views of the memory from which a step reads the inputs of a microbatch."""
        return self._parts[microbatch].inputs

    def stage(self, inputs: ByName, *, borrow: bool) -> None:
        """Stage the inputs of all microbatches, where they are if they are borrowed and can be packed from there."""
        for number, own in enumerate(self._each(inputs)):
            self._parts[number].stage(own, borrow=borrow)

    def forget(self) -> None:
        """Let borrowed arrays go, which no task reads any more."""
        self._borrowed, self.borrows = (), False
        for part in self._parts:
            part.forget()

    def stage_inputs(self, inputs: ByName, microbatch: int) -> None:
        """Stage borrowed inputs of one microbatch."""
        self._parts[microbatch].stage(inputs, borrow=True)

    def take_inputs(self) -> None:
        """Let the first microbatch read what lies in `inputs`."""
        self._parts[0].take()

    def stage_targets(self, targets: ByName, weights: ByName, *, borrow: bool) -> Pairs:
        """Stage targets and weights, where they are if they are borrowed; return the sums of weights by output."""
        self._borrowed, self.borrows = (targets, weights) if borrow else (), borrow
        totals: list[Pairs] = []
        for own, weighing, part in zip(
            self._each(targets), self._each(weights), self._parts, strict=True
        ):
            totals.append({})
            places: list[int] = []
            for name in self._outputs:
                array, weight = own[name], weighing.get(name)
                # Tasks have the address of these words, not of the arrays, which may lie
                # elsewhere in each step.
                places.append(_place(array, part.targets[name], borrow))
                places.append(0 if weight is None else _place(weight, part.weights[name], borrow))
                totals[-1][name] = self._losses[name].total_weights(array, weight)
            part.places.write(places)
        return _added(totals)

    def stage_numbers(
        self, iteration: int, totals: Pairs, hyper: Sequence[Sequence[float]] = (BLANK, BLANK)
    ) -> None:
        """Stage the number of the iteration, the factors that make means of sums, and what optimisers read.

        `totals`: the sums of weights, by output, that losses and wrong voxels are means of; `hyper`: HYPER_WORDS
        numbers each for filters and for all else.
        """
        factors = [
            mean_factor(self._losses[name].factor, total)
            for name in self._outputs
            for total in totals[name]
        ]
        self._numbers.write([*hyper[0], *hyper[1], iteration, *factors])

    def show_outputs(self, outputs: ByName, microbatch: int) -> None:
        """Stage where a forward pass copies the values of outputs to; nowhere those that are not given."""
        for name, place in self._parts[microbatch].outputs.items():
            array = outputs.get(name)
            place[0] = 0 if array is None else _address(array)

    def results(self, microbatches: int) -> Pairs:
        """Return loss and error by output, summed over the first microbatches."""
        if microbatches == 1:
            return self._parts[0].read()
        return _added([part.read() for part in self._parts[:microbatches]])

    def _each(self, arrays: ByName) -> Sequence[ByName]:
        """Return views of the samples of each microbatch."""
        if len(self._parts) == 1:
            return [arrays]
        return [microbatch_of(arrays, number, self._batch) for number in range(len(self._parts))]


class _Part:
    """Arrays over the staging of one microbatch; `targets`, `weights`: for what is not borrowed."""

    def __init__(self, arena: Arena, layout: Layout, own: Staging) -> None:
        self.inputs = {name: view_of(arena, tensor) for name, tensor in own.inputs.items()}
        self._sources = {name: arena.view(it, (1,), "i8") for name, it in own.sources.items()}
        self._rooms = {name: tensor.address for name, tensor in own.inputs.items()}
        # What stays planar is read as it is staged, among the zeros of its frame.
        self._packed = {name for name in own.inputs if not layout.stays_planar(name)}
        # Kept alive until others are staged.
        self._borrowed: dict[str, Floats] = {}
        self.take()
        self.places = _Packed(
            arena, min(own.places.values(), default=0), f"={2 * len(own.places)}q"
        )
        self.targets = {name: _Room(arena, it) for name, it in own.targets.items()}
        self.weights = {name: _Room(arena, it) for name, it in own.weights.items()}
        self.outputs = {name: arena.view(it, (1,), "i8") for name, it in own.outputs.items()}
        # Views of memory, whose items are numbers of Python.
        self._results = {
            name: arena.view(it.address, (2,), "f8").data for name, it in own.results.items()
        }

    def stage(self, inputs: ByName, *, borrow: bool) -> None:
        """Stage inputs, where they are if they are borrowed and can be packed from there."""
        for name, array in inputs.items():
            if borrow and name in self._packed and array.flags.c_contiguous:
                self._borrowed[name] = array
                self._sources[name][0] = _address(array)
            else:
                self.inputs[name][...] = array
                self._sources[name][0] = self._rooms[name]
                self._borrowed.pop(name, None)

    def take(self) -> None:
        """Let a step read what lies in `inputs`."""
        for name, address in self._rooms.items():
            self._sources[name][0] = address
        self.forget()

    def forget(self) -> None:
        """Let borrowed arrays go."""
        self._borrowed.clear()

    def read(self) -> Pairs:
        """Return loss and error by output."""
        return {name: (pair[0], pair[1]) for name, pair in self._results.items()}


class _Packed:
    """Numbers that lie side by side and are written by one call, as `struct` writes their format."""

    def __init__(self, arena: Arena, address: int, form: str) -> None:
        self._struct = Struct(form)
        self._room = arena.view(address, (self._struct.size,), "u1").data

    def write(self, values: Sequence[float]) -> None:
        self._struct.pack_into(self._room, 0, *values)


class _Room:
    """Room for one array, whose view is kept for the next array of that shape."""

    def __init__(self, arena: Arena, address: int) -> None:
        self._arena, self.address = arena, address
        self._view: Floats | None = None

    def fill(self, array: Floats) -> int:
        """Copy an array; return where to."""
        if self._view is None or self._view.shape != array.shape:
            self._view = self._arena.view(self.address, array.shape)
        self._view[...] = array
        return self.address


def microbatch_of(arrays: ByName, number: int, batch: int) -> dict[str, Floats]:
    """Return views of the samples of one microbatch of `batch` samples."""
    own = slice(number * batch, (number + 1) * batch)
    return {name: array[own] for name, array in arrays.items()}


def mean_factor(factor: float, total: float) -> float:
    """Return by what a sum is multiplied to become a mean times `factor`, as float32 can hold it."""
    # Nothing that counts: loss and gradient are 0 rather than NaN.
    mean = factor / total if total else 0.0
    # `struct` refuses what float32 rounds to infinity.
    return inf if mean > MOST else mean


def _added(pairs: Sequence[Pairs]) -> Pairs:
    if len(pairs) == 1:
        return pairs[0]
    return {name: added_pairs([own[name] for own in pairs]) for name in pairs[0]}


def _place(array: Floats, room: _Room, borrow: bool) -> int:
    """Return the address of an array's values: its own if it is borrowed, else that of a copy in `room`."""
    return _address(array) if borrow and array.flags.c_contiguous else room.fill(array)


def _address(array: Floats) -> int:
    # `ctypes` would make an object of Python for it.
    return int(array.__array_interface__["data"][0])
