"""Keeps measured costs of layers per machine, so that the next run on it chooses the same algorithms.

One JSON file per CPU and version of the timed code, in the cache directory; after each measurement it is written
beside, fsynced and renamed. A damaged file is put aside with a warning.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import platform
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
from znnpy_kernels.machine import cache, private_files, source_hash
from znnpy_kernels.simd.lanes import LANES

from znnpy.atomic_files import explained, replacing
from znnpy.errors import PlanError
from znnpy.locks import alone
from znnpy.plan import fftw
from znnpy.plan.types import COST_PARTS, Costs, Method

# The package's folder, below which `sources` looks for what decides times.
HOME = Path(__file__).parents[1]
Words = dict[str, float]
"""Costs as files have them: seconds by names such as `spectral 8x8x8 weight`."""


def path() -> Path:
    """Return the wisdom file of this machine."""
    # A home directory may be shared by machines of different kinds; lanes may be fewer than the CPU
    # has.
    cpu = f"{platform.machine()}-{llvmlite.binding.get_host_cpu_name()}-{LANES}"
    return cache.root() / f"wisdom-{cpu}-{version()}.json"


@functools.cache
def version() -> str:
    """Return a hash over all that decides how long a layer takes: kernels, compiler, code of tasks, FFTW.

    Comments, docstrings and layout of the code do not count.
    """
    # FFTW's version belongs to it: where FFTW is installed its method is a candidate.
    versions = [numba.__version__, llvmlite.__version__, fftw.version()]
    kernels = _code(source_hash.FOLDER, source_hash.sources())
    text = json.dumps([versions, kernels, _code(HOME, sources())], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _code(folder: Path, paths: list[Path]) -> dict[str, str]:
    """Return the hash of each module's code, by its path."""
    texts = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}

    def found() -> dict[str, str]:
        return {name: source_hash.code(text) for name, text in texts.items()}

    # Parsing takes a second, reading 5 ms: so it is done once for each version of the texts.
    raw = hashlib.sha256(repr(texts).encode()).hexdigest()[:16]
    try:
        return cache.kept(f"code-{raw}.json", found)
    except cache.CacheError:
        return found()  # whoever writes there says so


def sources() -> list[Path]:
    """Return the modules that make the timed tasks and choose the candidates."""
    return sorted(path for room in ("engine", "plan") for path in (HOME / room).rglob("*.py"))


def recall(key: str, methods: Collection[Method]) -> Costs | None:
    """Return the seconds by part measured for a layer by some of these methods; None if it was never measured."""
    return _costs(_read().get(key, {}), methods)


def remember(key: str, costs: Costs, methods: Collection[Method]) -> Costs:
    """Store a measurement of some of these methods unless another process was first; return what is stored."""
    cache.made()
    # Costs that are not kept would be others in the next process, and so would its choice and its bits.
    if cache.read_only():
        raise cache.lacking(["measured layer (conv: auto)"])
    target = path()
    # Read, change and write under one lock: two processes that measure different layers both keep
    # theirs.
    with alone(target.parent / "wisdom.lock", "notes what layers cost"):
        known = dict(_read())
        stored = _costs(known.get(key, {}), methods)
        # The first measurement stays: both processes must choose alike, or equal configs would
        # round differently.
        if stored is not None:
            return stored
        known[key] = _words(costs)
        text = json.dumps(known, indent=1, sort_keys=True)
        with explained(target, PlanError), replacing(target) as new:
            new.write_text(text)
            new.chmod(0o600)  # before it has content: files that others can write are not read
    return costs


def _words(costs: Costs) -> Words:
    return {
        f"{method} {part}": seconds
        for method, parts in costs.items()
        for part, seconds in parts.items()
    }


def _costs(words: Mapping[str, float], methods: Collection[Method]) -> Costs | None:
    """Return a layer's costs from the file; None if there are none, or any of what is not among these methods."""
    places = {f"{method} {part}": (method, part) for method in methods for part in COST_PARTS}
    costs: Costs = {}
    for name, seconds in words.items():
        if name not in places:
            return None
        method, part = places[name]
        costs.setdefault(method, {})[part] = seconds
    return costs or None


def _read() -> dict[str, Words]:
    """Return what the file holds, not to be changed."""
    target = path()
    if not private_files.own_file(target):
        return {}
    try:
        found = target.stat()
        # Each model asks several times for each of its layers, of hundreds in the file. It is replaced when it changes.
        return _parsed(target, (found.st_ino, found.st_mtime_ns, found.st_size))
    except FileNotFoundError:
        return {}
    # RecursionError: lists nested thousands deep.
    except (ValueError, AttributeError, RecursionError) as error:
        # Kept for whoever wants to know why, and out of the way of the next write.
        aside = target.with_suffix(".damaged")
        target.replace(aside)
        warnings.warn(f"wisdom {target} is damaged ({error}); measuring anew", stacklevel=3)
        return {}


@functools.lru_cache(maxsize=1)
def _parsed(target: Path, _version: tuple[int, int, int]) -> dict[str, Words]:
    return {
        str(key): {str(part): _seconds(cost) for part, cost in costs.items()}
        for key, costs in json.loads(target.read_text()).items()
    }


def _seconds(cost: Any) -> float:
    # Strictly, as no other cost was ever written: JSON has NaN and true, and Python takes texts for numbers.
    number = isinstance(cost, int | float) and not isinstance(cost, bool)
    if not number or not 0 <= cost < math.inf:
        raise ValueError(f"{cost!r} is no time in seconds")
    return float(cost)
