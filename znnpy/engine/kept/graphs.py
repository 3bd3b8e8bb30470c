"""Takes a memory plan and its graphs from a file, or plans and connects them, and keeps what took long."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np
from znnpy_kernels.machine import cache
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.machine.declarations import full_name, named
from znnpy_kernels.machine.stored_code import Code, code_of, linked

from znnpy.engine.kept import folder
from znnpy.engine.kept.arrays_file import Arrays, Packed, read, written
from znnpy.engine.kept.keys import family, key
from znnpy.engine.kept.records import (
    Record,
    Unrecorded,
    described_of,
    described_record,
    kernel_of,
    kernel_record,
    plan_of,
    plan_record,
    requests_of,
    requests_record,
    transfers_of,
    transfers_record,
)
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory_planning import MemoryPlan, planned_within, with_tasks
from znnpy.engine.step_tasks import Connected, PlannedTasks, Settings
from znnpy.engine.tasks.frozen_graph import FrozenGraph
from znnpy.errors import reason
from znnpy.graph import TaskGraph

CODE = "code"
"""Of arrays, in place of a graph's name: the machine code of kernels."""
LEAST_CALLS = 2048
"""Of kernels in a step: fewer are declared and connected, by code that has to be loaded, in less than half a second."""


def planned(layout: Layout, settings: Settings) -> MemoryPlan:
    """Return `planned_within` with tasks, or the same plan with graphs that another process has kept."""
    found = recalled(layout, settings)
    return found or with_tasks(planned_within(layout, settings, keep=True), settings)


def recalled(layout: Layout, settings: Settings) -> MemoryPlan | None:
    """Return the memory plan of a layout with its graphs, if they are kept."""
    if not folder.has(family(layout)):
        return None
    name = key(layout, settings)
    content = name and folder.content(name)
    found = name and content and read(name, content)
    if not found:
        return None
    record, arrays = found
    kernels = _linked(record["symbols"], arrays)
    graphs = {
        graph: _thawed(graph, own, arrays, kernels) for graph, own in record["graphs"].items()
    }
    transfers = transfers_of(record["transfers"])
    connected = Connected(requests_of(record["requests"]), graphs, transfers)
    return replace(plan_of(record["plan"], layout, kernels), connected=connected)


def _linked(symbols: Mapping[str, str], arrays: Arrays) -> Mapping[str, Kernel]:
    """Return kernels by their names, linked from their machine code, but those that this process has loaded."""
    codes = {
        name: Code(symbol, arrays[_label(CODE, name)].tobytes())
        for name, symbol in symbols.items()
        if not _loaded(name)
    }
    return linked(codes)


def _loaded(name: str) -> bool:
    found = named(name)
    return isinstance(found, Kernel) and found.loaded


def _thawed(
    graph: str, record: Record, arrays: Arrays, kernels: Mapping[str, Kernel]
) -> FrozenGraph:
    return FrozenGraph(
        {it: arrays[_label(graph, it)] for it in record["arrays"]},
        [kernel_of(it, kernels) for it in record["kernels"]],
        [described_of(it) for it in record["what"]],
        record["policy"],
    )


def _frozen(graph: FrozenGraph) -> Record:
    return {
        "arrays": list(graph.arrays),
        "kernels": [kernel_record(it) for it in graph.kernels],
        "what": [described_record(it) for it in graph.what],
        "policy": graph.policy,
    }


def _label(graph: str, field: str) -> str:
    """Return under which name a file has an array of a graph."""
    return f"{graph} {field}"


class Keeper:
    """Keeps the graphs of a plan that are made until its main one is, in one file."""

    def __init__(self, plan: MemoryPlan, tasks: PlannedTasks, settings: Settings) -> None:
        self._plan, self._settings = replace(plan, tasks=None), settings
        self._requests, self._transfers = tasks.build.requests(), tasks.transfers
        self._graphs: dict[str, Record] = {}
        self._arrays: dict[str, Packed] = {}
        self._kernels = set(plan.kernels)

    @classmethod
    def of(cls, plan: MemoryPlan, settings: Settings, main: str) -> Keeper | None:
        """Return one for a plan with its tasks, if those of the main graph are many."""
        if not plan.tasks or cache.read_only():
            return None
        (step,) = plan.tasks.steps[main]
        many = sum(1 + len(task.more) for task in step) >= LEAST_CALLS
        return cls(plan, plan.tasks, settings) if many else None

    def noted(self, name: str, graph: TaskGraph) -> TaskGraph:
        """Note a graph whose addresses of buffers are not moved yet, if it can be kept; return it."""
        frozen = FrozenGraph.of(graph, self._plan.kernels)
        if not frozen:
            return graph
        with suppress(Unrecorded):
            self._graphs[name] = _frozen(frozen)
            self._kernels.update(frozen.kernels)
            arrays = frozen.arrays.items()
            self._arrays |= {_label(name, field): Packed.of(array) for field, array in arrays}
        return frozen.graph()

    def write(self, main: str) -> None:
        """Write the file, if the main graph can be kept; where it cannot be written, that is told."""
        name = key(self._plan.layout, self._settings)
        if name is None or main not in self._graphs:
            return
        ordered = sorted(self._kernels, key=full_name)
        codes = {full_name(it): code for it in ordered if (code := code_of(it))}
        try:
            record = {
                "plan": plan_record(self._plan),
                "requests": requests_record(self._requests),
                "transfers": transfers_record(self._transfers),
                "graphs": self._graphs,
                "symbols": {name: code.symbol for name, code in codes.items()},
            }
        except Unrecorded:
            return
        arrays = self._arrays | {
            _label(CODE, name): Packed.of(np.frombuffer(code.content, np.uint8))
            for name, code in codes.items()
        }
        try:
            folder.keep(name, written(name, record, arrays))
        except OSError as error:
            warnings.warn(f"connected graphs are not kept: {reason(error)}", stacklevel=2)
