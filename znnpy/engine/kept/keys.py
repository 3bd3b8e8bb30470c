"""Keys of what is kept: digests of all that tasks and their places, or a choice, follow from, and of the code.

What other packages add to registries has code that no digest here knows: networks that use it have no key. Nor have
those with layers by FFTW, whose plans lie where this process has made them.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import psutil
from pydantic import BaseModel
from znnpy_kernels.machine import source_hash
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.machine.declarations import full_name
from znnpy_kernels.simd.lanes import LANES, target_features

from znnpy.data.process_memory import whole_memory
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory_planning import room_for_replicas
from znnpy.engine.step_tasks import Settings
from znnpy.geometry import Geometry
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.layers.edges import EDGE_KINDS
from znnpy.learning.optimizers import OPTIMIZERS
from znnpy.network.types import Network
from znnpy.plan import ALGORITHMS, PASSES, Choice, Plan, fftw

HOME = Path(__file__).parents[2]
OWN = ("znnpy", "znnpy_kernels", "numpy", "builtins")
"""Packages whose code is in the digest, or is no code that tasks follow from."""
BEGAN = min(time.time(), psutil.Process().create_time())
"""When this process may have read the first of its sources; a fork has what was loaded before it."""
APART = ("steal_seed", "record", "optimizer", "clip_norm", "party")
"""Settings that no task follows from, or only in part, which is told beside.

Tasks read the optimiser's numbers, the norm by which gradients are clipped, and the seed where a step is staged. Of
ranks, where their messages and memory lie is not told.
"""


@dataclass(frozen=True)
class Choosing:
    """What the samples of a microbatch are chosen for: an update by `batch` samples, on each of so many `ranks`.

    `sizes`: those that are chosen among; `conv`: as in `training.conv`; `pinned`: the record of a given plan.
    """

    network: Network
    geometry: Geometry
    batch: int
    sizes: tuple[int, ...]
    ranks: int
    conv: Choice
    pinned: Mapping[str, Any] | None = None


class _ForeignError(Exception):
    """There is something of another package or version, or that has no text which tells it apart."""


def family(layout: Layout) -> str:
    """Return sizes that all keys of a layout begin with: found at once, where digests take some milliseconds."""
    network, shapes = layout.network, layout.geometry.input_shapes
    voxels = sum(prod(shape) for shape in shapes.values())
    sizes = len(network.nodes), len(network.edges), layout.batch, voxels, layout.workers
    return "-".join(map(str, sizes))


def key(layout: Layout, settings: Settings) -> str | None:
    """Return the key of a layout of one rank, planned or not, a file's name; None where there is none."""
    # Neither their order nor why a method was chosen changes tasks; a run's own plan has another order.
    layers = {name: replace(layer, reason="") for name, layer in sorted(layout.plan.layers.items())}
    methods = (layer.method(which) for layer in layers.values() for which in PASSES)
    if any(ALGORITHMS[method.algorithm].traits.plans_ffts for method in methods):
        return None
    alike = replace(_asked(layout), plan=Plan(layers), seed=0)
    follows = [alike, layout.grain, *_steps_of(layout.network, settings), _room(layout, settings)]
    return _named(family(layout), follows)


def choice_family(choice: Choosing, settings: Settings) -> str:
    """Return what all keys of a choice of microbatches begin with."""
    network, voxels = choice.network, sum(map(prod, choice.geometry.input_shapes.values()))
    sizes = len(network.nodes), len(network.edges), choice.batch, voxels, settings.threads
    return "-".join(["microbatch", *map(str, sizes)])


def choice_key(choice: Choosing, settings: Settings) -> str | None:
    """Return the key of a choice of microbatches, a file's name; None where there is none.

    What layers were measured to cost is not told: as with their algorithms, what was chosen first stays.
    """
    # With a limit above what the machine has, sizes are refused by the machine.
    room = min(room_for_replicas(settings), whole_memory())
    follows = [choice, *_steps_of(choice.network, settings), room]
    return _named(choice_family(choice, settings), [*follows, fftw.version()])


def _named(begin: str, follows: Sequence[Any]) -> str | None:
    """Return a name that tells what something follows from, this machine and this code; None where there is none."""
    try:
        told = _told(follows), _machine(), _code()
    except _ForeignError:
        return None
    return f"{begin}-{hashlib.sha256(repr(told).encode()).hexdigest()[:32]}"


def _steps_of(network: Network, settings: Settings) -> list[Any]:
    """Return what of the settings of a step tasks follow from, and the entries that they use."""
    own = {it.name: getattr(settings, it.name) for it in fields(settings) if it.name not in APART}
    own |= {"states": settings.optimizer.state_names, "clips": settings.clip_norm is not None}
    party = settings.party
    own["ranks"] = party and [party.ranks, party.strategy, party.rank, party.near]
    kinds = sorted({edge.kind for edge in network.edges})
    functions = sorted({node.function for node in network.nodes})
    entries = [
        OPTIMIZERS[settings.optimizer.kind],
        *(EDGE_KINDS[kind] for kind in kinds),
        *(FUNCTIONS[function] for function in functions),
    ]
    return [own, entries]


def _asked(layout: Layout) -> Layout:
    """Return the layout that a plan was asked for: how many microbatches are in flight follows from memory."""
    many = len(layout.numbers) > 1
    return replace(layout, replicas=1, filters_kept=False) if many else layout


def _room(layout: Layout, settings: Settings) -> int:
    """Return the bytes that decide how many microbatches are in flight; 0 of a single one."""
    return room_for_replicas(settings) if len(layout.numbers) > 1 else 0


def _machine() -> list[Any]:
    versions = platform.python_version(), np.__version__, numba.__version__, llvmlite.__version__
    # The second name is what code is compiled for where NUMBA_CPU_NAME says so; files have code.
    cpu = platform.machine(), llvmlite.binding.get_host_cpu_name(), numba.config.CPU_NAME
    return [*versions, *cpu, LANES, target_features()]


@cache
def _code() -> str:
    """Return a hash over all sources, to the letter; _ForeignError if they are newer than what this process runs."""
    digest = hashlib.sha256()
    for home in (HOME, source_hash.FOLDER):
        for path in sorted(_sources(home)):
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123
                found = os.fstat(file.fileno())
                # What installs others over them may leave them the time at which they were written.
                if max(found.st_mtime, found.st_ctime) > BEGAN:
                    raise _ForeignError
                digest.update(path.removeprefix(str(home)).encode() + file.readall())
    return digest.hexdigest()


def _sources(home: Path) -> Iterator[str]:
    """Yield the modules below a folder: some hundreds, of which `Path` would take longer than to read them."""
    for folder, _, names in os.walk(home):
        yield from (f"{folder}/{name}" for name in names if name.endswith(".py"))


def _told(value: Any) -> Any:
    """Return what `repr` tells apart from all other values, in every process alike."""
    if value is None or type(value) in (bool, int, float, str, range):
        return value
    if isinstance(value, Fraction | np.generic):
        return type(value).__name__, str(value)
    if isinstance(value, Enum):
        return _name(type(value)), value.name
    if isinstance(value, tuple | list):
        return [type(value).__name__, *map(_told, value)]
    if isinstance(value, Mapping):
        return ["mapping", *([_told(name), _told(own)] for name, own in value.items())]
    if isinstance(value, frozenset | set):
        return ["set", *sorted(map(repr, map(_told, value)))]
    if isinstance(value, Kernel):
        return _own(value), full_name(value)
    if isinstance(value, partial):
        return ["partial", *map(_told, (value.func, value.args, value.keywords))]
    if isinstance(value, BaseModel):
        return [_name(type(value)), *(_told(it) for it in value)]
    if is_dataclass(value) and not isinstance(value, type):
        return [_name(type(value)), *(_field(value, it) for it in fields(value))]
    return _name(value)


def _field(value: Any, it: Field[Any]) -> Any:
    found = getattr(value, it.name)
    # Entries name kernels as "module:name" where they may also have them.
    if isinstance(found, str) and it.type == "Any":
        _refuse_foreign(found.partition(":")[0])
    return _told(found)


def _name(value: Callable[..., Any]) -> str:
    """Return the name of a function or class of this package."""
    name = getattr(value, "__qualname__", None)
    if name is None:
        raise _ForeignError
    return f"{_own(value)}:{name}"


def _own(value: Any) -> str:
    """Return the module of what this package defines."""
    module = str(value.__module__)
    _refuse_foreign(module)
    return module


def _refuse_foreign(module: str) -> None:
    if module.partition(".")[0] not in OWN:
        raise _ForeignError
