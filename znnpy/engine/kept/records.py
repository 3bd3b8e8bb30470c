"""Memory plans, and what tasks have asked for, as records that JSON can hold, and back."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from operator import index
from typing import Any

from znnpy_kernels.machine import declarations
from znnpy_kernels.machine.abi import Kernel

from znnpy.distributed.transfers import Span, Transfer, Way
from znnpy.engine.memory.arena import Sharing
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.regions import Filled, Name, foreseen, use_of
from znnpy.engine.memory.requests import Request, Requests
from znnpy.engine.memory_planning import MemoryPlan
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.graph import BARRIER, Described

Record = dict[str, Any]
ENUMS: Mapping[str, type[Enum]] = {it.__name__: it for it in (Pass, Part)}
"""What names of buffers hold."""


class Unrecorded(Exception):  # noqa: N818
    """Something has no record."""


def plan_record(plan: MemoryPlan) -> Record:
    """Return the record of a memory plan, without its layout and tasks."""
    sharing = plan.sharing
    names = {name: number for number, name in enumerate(sharing.offsets)}
    return {
        "bytes": plan.bytes,
        "replicas": plan.layout.replicas,
        "filters_kept": plan.layout.filters_kept,
        "workspace": plan.workspace,
        "uses": dict(plan.uses),
        "again": plan.again,
        "kept": plan.kept,
        "elementwise": plan.elementwise,
        "kernels": [kernel_record(kernel) for kernel in _in_order(plan.kernels)],
        "names": [_name_record(name) for name in names],
        "offsets": [*map(index, sharing.offsets.values())],
        "shared": sharing.bytes,
        "neighbours": [
            [names[name], [names[it] for it in others]]
            for name, others in sharing.neighbours.items()
        ],
        "busiest": [names[name] for name in sharing.busiest],
        "repeated": [names[name] for name in sharing.again],
    }


def plan_of(record: Record, layout: Layout, linked: Mapping[str, Kernel]) -> MemoryPlan:
    """Return the memory plan of a layout from its record; `linked`: as `kernel_of`."""
    own = {name: record[name] for name in ("replicas", "filters_kept")}
    # The same one where it is equal: it knows what follows from it.
    if any(getattr(layout, name) != value for name, value in own.items()):
        layout = replace(layout, **own)
    names = [_name_of(name) for name in record["names"]]
    sharing = Sharing(
        dict(zip(names, record["offsets"], strict=True)),
        record["shared"],
        {names[name]: [names[it] for it in others] for name, others in record["neighbours"]},
        [names[it] for it in record["busiest"]],
        layout.replicas,
        tuple(names[it] for it in record["repeated"]),
    )
    return MemoryPlan(
        layout,
        record["bytes"],
        sharing,
        record["workspace"],
        record["uses"],
        record["again"],
        record["kept"],
        frozenset(kernel_of(it, linked) for it in record["kernels"]),
        record["elementwise"],
    )


def requests_record(requests: Requests) -> Record:
    """Return the record of what tasks have asked for."""
    return {
        "reserved": requests.reserved,
        "later": [
            [it.kind, it.name and _name_record(it.name), it.floats, it.filled.name, *it[4:]]
            for it in requests.later
        ],
    }


def requests_of(record: Record) -> Requests:
    """Return what tasks have asked for from its record."""
    later = (
        Request(kind, name and _name_of(name), floats, Filled[filled], *others)
        for kind, name, floats, filled, *others in record["later"]
    )
    return Requests(tuple(record["reserved"]), tuple(later))


def transfers_record(transfers: Sequence[Transfer]) -> list[Any]:
    """Return the record of the messages of a graph."""
    return [[it.way.name, *it[1:]] for it in transfers]


def transfers_of(record: Sequence[Any]) -> tuple[Transfer, ...]:
    """Return the messages of a graph from their record."""
    return tuple(
        Transfer(Way[way], peer, tag, tuple(Span(*span) for span in spans), *others)
        for way, peer, tag, spans, *others in record
    )


def kernel_record(kernel: Kernel) -> list[str]:
    """Return a kernel's name, and modules whose import declares it."""
    return [declarations.full_name(kernel), *declarations.others(kernel)]


def kernel_of(record: Sequence[str], linked: Mapping[str, Kernel]) -> Kernel:
    """Return a kernel from its record: of those `linked`, by name, else of the modules that declare it."""
    name, *others = record
    if name in linked:
        return linked[name]
    for module in (name.partition(":")[0], *others):
        importlib.import_module(module)
    found = declarations.named(name)
    assert isinstance(found, Kernel), name
    return found


def described_record(what: Described) -> list[Any]:
    """Return the record of a task's description."""
    if what == BARRIER:
        return []
    if not isinstance(what, Identity):
        raise Unrecorded(what)
    return [what.owner, what.serves.name, what.part.name]


def described_of(record: Sequence[Any]) -> Described:
    """Return a task's description from its record."""
    if not record:
        return BARRIER
    owner, serves, part = record
    return Identity(owner, Pass[serves], Part[part])


def _in_order(kernels: frozenset[Kernel]) -> list[Kernel]:
    return sorted(kernels, key=declarations.full_name)


def _name_record(name: Name) -> list[Any]:
    use = name.use
    if use_of(use.what, use.together) is not use:
        raise Unrecorded(use)
    return [use.what, use.together, name.owner, [*map(_which, name.which)], name.replica]


def _name_of(record: Sequence[Any]) -> Name:
    what, together, owner, which, replica = record
    use = foreseen(what, together)
    assert use, what
    return Name(use, owner, tuple(map(_which_of, which)), replica)


def _which(value: Any) -> Any:
    """Return the record of what tells a buffer from others of its use and owner."""
    if isinstance(value, Enum):
        kind = type(value).__name__
        if ENUMS.get(kind) is not type(value):
            raise Unrecorded(value)
        return {kind: value.name}
    if isinstance(value, tuple):
        return [*map(_which, value)]
    if isinstance(value, str | bool | None):
        return value
    try:
        return index(value)
    except TypeError:
        raise Unrecorded(value) from None


def _which_of(record: Any) -> Any:
    if isinstance(record, Mapping):
        ((kind, name),) = record.items()
        return ENUMS[kind][name]
    return tuple(map(_which_of, record)) if isinstance(record, list) else record
