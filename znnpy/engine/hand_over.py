"""`HandOver`: starts updates by one compiled call, where a network has one input and one output and nothing is special.

What needs more (other types and layouts, weights, values that a loss does not take) goes the way that converts, or says
what is wrong: `SingleEngine.submit`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Any

import numpy as np
from znnpy_kernels import hand_over as native

from znnpy.engine.execution import Graphs
from znnpy.engine.memory.allocation import STEPS, Build
from znnpy.engine.memory.staging import HYPER_WORDS, NUMBERS
from znnpy.engine.staged_step import Pairs, StagedStep, mean_factor
from znnpy.engine.step_result import KEPT
from znnpy.engine.step_tasks import Settings
from znnpy.engine.tasks.dependencies import last_group, loss_group
from znnpy.network.types import ONCE
from znnpy.scheduler import Executor
from znnpy.scheduler.executor import SLICE_NS

BUSY, KNOWN = native.BUSY, native.KNOWN
LOW_BITS = (1 << native.OUTCOME_BITS) - 1
MISFITS = 4
"""Arrays of other types or layouts after which no more are tried: numba's refusal takes long."""


class HandOver:
    """What the compiled call needs of one model, and the arrays that its tasks read where they lie."""

    @classmethod
    def of(
        cls,
        build: Build,
        settings: Settings,
        graphs: Graphs,
        staged: Sequence[StagedStep],
        results: dict[int, Pairs],
    ) -> HandOver | None:
        """Return one for a model's updates, which adds to `results`; None where they need more than it does."""
        layout, losses = build.layout, settings.losses
        if settings.party or len(layout.numbers) > 1:
            return None
        if len(layout.network.inputs) > 1 or len(losses) > 1:
            return None
        (objective,) = losses.values()
        # Such a mean is of what the target holds.
        if objective.loss.weighs_mean(objective.keys):
            return None
        executor = graphs.executor("update")
        if not isinstance(executor, Executor):
            return None
        return cls(build, settings, graphs, executor, staged, results)

    def __init__(
        self,
        build: Build,
        settings: Settings,
        graphs: Graphs,
        executor: Executor,
        staged: Sequence[StagedStep],
        results: dict[int, Pairs],
    ) -> None:
        (self._name,) = settings.losses
        objective, target = settings.losses[self._name], _shape(build, self._name)
        totals = objective.total_weights(np.broadcast_to(np.float32(0), target), None)
        self._factors = [mean_factor(objective.factor, total) for total in totals]
        self._form = Struct(f"{NUMBERS}{len(totals)}f")
        self._numbers = np.zeros(self._form.size // 8, np.int64)
        self._optimizer, self._rate = settings.optimizer, -1.0
        self._counts = settings.optimizer.counts
        # Kept, as compiled code has its address.
        self._executor, self._control = executor, executor.control
        self._block = self._filled(build, graphs)
        self._block.view(np.float64)[native.LOW // 8 :][:3] = objective.reading.target.bounds
        # Views of memory, whose items are numbers of Python.
        self._last = self._block.view(np.float64)[native.BEFORE // 8 :].data
        self._now = [
            build.arena.view(own.results[self._name].address, (2,), "f8").data
            for (own,) in build.staging
        ]
        self._address = int(self._block.ctypes.data)
        self._call, self._process = native.hand_over.compile(), os.getpid()
        self._build, self._staged, self._results = build, staged, results
        # Of the last two updates and the one that starts, while tasks may read them: after a Ctrl-C for some time. Then
        # the last input alone, which `first_non_finite` reads once more.
        self._held: deque[tuple[Any, ...]] = deque(maxlen=STEPS + 1)
        # No loss waits for what is packed of voxels that strides, dilations and crops leave out: such inputs stay until
        # their update is complete.
        (source,) = build.layout.network.inputs
        geometry, outgoing = build.layout.geometry, build.layout.network.outgoing(source.name)
        dense = any(
            edge.kind == "conv" and edge.stride == geometry.dilations[edge.name] == ONCE
            for edge in outgoing
        )
        self._inputs = 1 if dense else STEPS
        self._misfits, self.ready = 0, True

    def _filled(self, build: Build, graphs: Graphs) -> Any:
        (source,) = build.layout.network.inputs
        block = np.zeros(native.BLOCK_BYTES // 8, np.int64)

        def put(word: int, *values: int) -> None:
            block[word // 8 : word // 8 + len(values)] = values

        put(native.CONTROL, self._control.ctypes.data, self._numbers.ctypes.data)
        put(native.NUMBER_WORDS, len(self._numbers), 2 * 8 * HYPER_WORDS)
        put(native.INPUT, *_shape(build, source.name))
        put(native.TARGET, *_shape(build, self._name))
        room = build.staging[0][0].inputs[source.name]
        put(native.STEPS, room.batch_stride, room.block_stride, room.z_stride, room.y_stride)
        # As `SingleEngine._stage` has it.
        put(native.BORROWS, not (build.layout.stays_planar(source.name) or build.again))
        for parity, (own,) in enumerate(build.staging):
            last = last_group(parity)
            put(
                native.PARITIES + parity * native.PARITY_BYTES,
                last if graphs.waits_for("update", last) else -1,
                loss_group(parity),
                own.inputs[source.name].address,
                own.sources[source.name],
                own.targets[self._name],
                own.places[self._name],
                own.hyper,
                own.results[self._name].address,
            )
        return block

    def start(
        self, x: Any, target: Any, rate: float, iteration: int, *, borrow: bool
    ) -> int | None:
        """Do what `SingleEngine.submit` does, with arrays as they were given; None where that needs more than this.

        Only while `ready`, which is False until `submit` was called unless this ends as it should.
        """
        self.ready = False
        # Of no subclass: those may be masked. The rest numba looks at.
        if not type(x) is type(target) is np.ndarray or self._process != os.getpid():
            return None
        if rate != self._rate or self._counts:
            self._rate = -1.0  # none, should Ctrl-C come before all are packed
            hyper, biases = self._optimizer.hyperparameters(rate, iteration + 1)
            self._form.pack_into(self._numbers.data, 0, *hyper, *biases, 0, *self._factors)
            self._rate = rate
        if borrow:
            self._held.append((x, target))
        try:
            outcome: int = self._call(x, target, self._address, iteration, borrow, SLICE_NS)
            state, ticket = outcome & LOW_BITS, outcome >> native.OUTCOME_BITS
            if state <= BUSY:
                return None
            self._note(ticket)
        except TypeError:
            self._misfits += 1
            return None
        except BaseException:
            # Ctrl-C comes as soon as the call has ended, which may have started the update.
            self._note(self._executor.released(0) + self._executor.released(1) - 1)
            raise
        results, parity = self._results, ticket % STEPS
        # Bounded, as a run has millions of updates.
        results.pop(ticket - KEPT, None)
        if borrow:
            if state != KNOWN:
                # In slices, between which Ctrl-C is seen.
                self._executor.wait(loss_group(parity), ticket // STEPS + 1)
            now = self._now[parity]
            results[ticket] = {self._name: (now[0], now[1])}
            # Where the loss of the one before is known, no task reads its target, and of its input none that counts.
            if ticket - 1 in results:
                while len(self._held) > self._inputs:
                    self._held.popleft()
                self._held[-1] = (x,)
        if self._staged[parity].borrows:
            # What the step before the last has read.
            self._staged[parity].forget()
        self.ready = True
        return ticket

    def _note(self, ticket: int) -> None:
        """Note which update is the last, and the result of the one whose place it takes."""
        self._build.parity = ticket % STEPS  # whose inputs `first_non_finite` looks at
        before = ticket - STEPS
        if before >= 0 and before not in self._results:
            self._results[before] = {self._name: (self._last[0], self._last[1])}

    def renew(self) -> None:
        """Note that `submit` has waited for the step before the last, and that no other graph has work left."""
        self.ready = self._misfits < MISFITS


def _shape(build: Build, node: str) -> tuple[int, ...]:
    layout = build.layout
    return layout.samples, layout.network.node(node).channels, *layout.shape(node)
