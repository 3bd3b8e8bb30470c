"""Autotuning: chooses each layer's algorithm by earlier measurements (wisdom), by measuring now, or by estimates."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from znnpy_kernels.compile import RUNTIME, compile_all, on_disk
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.machine.native import Native

from znnpy.data.process_memory import readable
from znnpy.engine.progress import COMPILING, MEASURING, Report
from znnpy.engine.tasks.declaration import uncollected
from znnpy.geometry import Geometry
from znnpy.lazily import lazily
from znnpy.network.types import Network
from znnpy.plan import Choice, ConvShape, Costs, Plan, candidates, choose
from znnpy.plan.choose import ESTIMATED, MEASURED, UNMEASURED, close_calls, estimated_costs
from znnpy.plan.wisdom import recall, remember
from znnpy.scheduler.core_count import available_cores

if TYPE_CHECKING:
    from znnpy.engine import timing
else:
    # With all that declares tasks: for layers that nobody has measured.
    timing = lazily("znnpy.engine.timing")


def planned(
    network: Network,
    geometry: Geometry,
    batch: int,
    conv: Choice,
    record: Mapping[str, Mapping[str, Any]] | None,
    training: bool = True,
    report: Report | None = None,
    measuring: bool = True,
    max_memory: int | None = None,
) -> Plan:
    """Return the plan of a saved record, or choose one, measuring layers whose algorithms are close by estimate.

    Measuring takes `max_memory` bytes at most. Without `measuring`, earlier measurements and estimates decide.
    """
    if record is not None:
        return Plan.from_record(record, network)
    if not measuring:
        costs = partial(known_or_estimated, max_memory=max_memory)
        return choose(network, geometry, batch, conv, costs, training)
    # All layers are compiled for and measured before any is chosen, so that compilation uses all
    # cores at once and no measurement runs beside it.
    if conv == "auto":
        shapes = close_calls(network, geometry, batch, training)
        measure_all(shapes, report, max_memory)
        # After measuring, so that the costs it asks for are known; one warning for the whole plan.
        _tell_left_out(shapes, max_memory)
    costs = partial(measured, max_memory=max_memory)
    return choose(network, geometry, batch, conv, costs, training)


@uncollected()
def measure_all(
    shapes: Sequence[ConvShape], report: Report | None = None, max_memory: int | None = None
) -> None:
    """Measure the layers that wisdom does not know: those whose kernels are there first, others once all are compiled.

    A layer's tasks are declared to know its kernels, and are those that run; only where kernels are missing they are
    declared again, which takes little beside compiling.
    """
    unknown = {
        shape: fitting
        for shape in shapes
        if known(shape, max_memory) is None
        and (fitting := timing.measurable(shape, candidates(shape), max_memory))
    }
    if not unknown:
        return
    bench, missing, waiting = timing.Workbench(), set[Kernel | Native](), list[ConvShape]()
    done = count()

    def measure(shape: ConvShape) -> None:
        if report:
            report(MEASURING, next(done), len(unknown))
        measured(shape, max_memory, bench)
        bench.clear()

    for shape, methods in unknown.items():
        # What other layers lead to expect to be hopeless is declared if it is run.
        asked = [it for it in methods if bench.least(shape, it) is None]
        tasks = (bench.declared(timing.smaller(shape, it, max_memory), it) for it in asked)
        if absent := _absent({*RUNTIME, *(kernel for it in tasks for kernel in it.kernels)}):
            missing |= absent
            waiting.append(shape)
            bench.clear()
        else:
            measure(shape)
    # At once, by all cores, and before these layers are measured: a kernel that is compiled while another runs would
    # disturb its time.
    kernels = {it for it in missing if isinstance(it, Kernel)}
    compile_all(kernels, available_cores(), partial(report, COMPILING) if report else None)
    for shape in waiting:
        measure(shape)
    if report:
        report(MEASURING, len(unknown), len(unknown))


def _absent(asked: set[Kernel | Native]) -> set[Kernel | Native]:
    """Return those that this process has not loaded, and no disk has."""
    return {it for it in asked if not (it.loaded or on_disk(it))}


def measuring_bytes(
    network: Network,
    geometry: Geometry,
    batch: int,
    training: bool = True,
    max_memory: int | None = None,
) -> int:
    """Return the bytes that measuring needs, before those of an update are reserved; 0 if wisdom has all layers."""
    return max(
        (
            timing.trial_bytes(shape, methods, max_memory)
            for shape in close_calls(network, geometry, batch, training)
            if known(shape, max_memory) is None
            and (methods := timing.measurable(shape, candidates(shape), max_memory))
        ),
        default=0,
    )


def _tell_left_out(shapes: Sequence[ConvShape], max_memory: int | None) -> None:
    """Warn of what cannot be measured within `max_memory`, once for all layers."""
    said = []
    for shape in shapes:
        costs, why = measured(shape, max_memory)
        channels = f"{shape.inputs} to {shape.outputs} channels"
        if why == ESTIMATED:
            said.append(f"{channels} by any algorithm (estimates choose)")
        elif left := [str(method) for method in candidates(shape) if method not in costs]:
            said.append(f"{channels} by {', '.join(left)} (others are chosen among)")
    if said:
        warnings.warn(
            f"max_memory of {readable(max_memory or 0)} has no room to measure layers of {'; '.join(said)}",
            stacklevel=3,
        )


def measured(
    shape: ConvShape, max_memory: int | None = None, bench: timing.Workbench | None = None
) -> tuple[Costs, str]:
    """Return seconds by part of one layer on one core, from wisdom or measured now and saved; and their source.

    Layers that do not fit into `max_memory` bytes are measured on smaller patches or fewer samples. Methods that do
    not fit even then are left out: the network would hardly fit with them. If none fits, all are estimated.
    """
    if found := known(shape, max_memory):
        return found, MEASURED
    methods, key = candidates(shape), _key(shape)
    # A limit that is no limit here: the measurement serves every run, under the name without bytes.
    if max_memory is None or timing.as_without_limit(shape, methods, max_memory):
        return remember(key, timing.timed(shape, methods, bench=bench), methods), MEASURED
    if fitting := timing.measurable(shape, methods, max_memory):
        costs = timing.timed(shape, fitting, max_memory, bench)
        return remember(_within(key, max_memory), costs, methods), MEASURED
    # Not remembered: with more memory the layer must still be measured.
    return estimated_costs(shape, methods), ESTIMATED


def known(shape: ConvShape, max_memory: int | None = None) -> Costs | None:
    """Return seconds by part as measured on this machine before; None if they never were.

    Measurements without a limit serve any limit, for the methods that fit; else those with this very limit.
    """
    methods = candidates(shape)
    found = recall(key := _key(shape), methods)
    if found and max_memory is not None:
        # What competes must not depend on what was measured before (docs/design/convolution.md,
        # "auto").
        found = {it: found[it] for it in timing.measurable(shape, list(found), max_memory)}
    return found or (None if max_memory is None else recall(_within(key, max_memory), methods))


def known_or_estimated(shape: ConvShape, max_memory: int | None = None) -> tuple[Costs, str]:
    """Return seconds by part as measured before, else as estimated; and their source."""
    if found := known(shape, max_memory):
        return found, MEASURED
    methods = candidates(shape)
    possible = any(timing.fits(shape, method, max_memory) for method in methods)
    return estimated_costs(shape, methods), UNMEASURED if possible else ESTIMATED


def _key(shape: ConvShape) -> str:
    # The candidates belong to the key: with another set of methods the times do not compare what
    # has to be chosen among.
    return f"{shape!r} by {', '.join(map(str, candidates(shape)))}"


def _within(key: str, max_memory: int) -> str:
    return f"{key} in {max_memory} bytes"
