"""A plan in a file, `training.plan`: what would be measured otherwise, so that any cache gives the same bits.

JSON with `layers`, as `Plan.to_record` makes them, and, where a layer runs by whole-image FFT, `fftw`: FFTW's
wisdom. The `plan.json` of a run, layers alone, is read too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from znnpy.errors import PlanError, reason
from znnpy.network.types import Network
from znnpy.plan import fftw
from znnpy.plan.algorithms import ALGORITHMS
from znnpy.plan.record import Plan

MOST_BYTES = 1 << 24


@dataclass(frozen=True)
class SavedPlan:
    """Layers by name as records, and FFTW's wisdom if any of them needs it."""

    layers: Mapping[str, Any]
    fftw: str | None = None


def saved_plan(plan: Plan) -> SavedPlan:
    """A plan with what this process knows of FFTW, once its FFTs are planned."""
    by_fftw = [name for name, algorithm in ALGORITHMS.items() if algorithm.traits.plans_ffts]
    needs = any(layer.uses(name) for layer in plan.layers.values() for name in by_fftw)
    return SavedPlan(plan.to_record(), fftw.known() if needs else None)


def to_text(saved: SavedPlan) -> str:
    """The content of a file."""
    record = {"layers": dict(saved.layers)} | ({"fftw": saved.fftw} if saved.fftw else {})
    return json.dumps(record, indent=2, sort_keys=True) + "\n"


def read_plan(path: Path, network: Network) -> SavedPlan:
    """The plan of a file; PlanError, naming it, when it is none or of another network."""
    try:
        return _checked(json.loads(_text(path)), network)
    except (PlanError, ValueError, RecursionError) as error:
        raise PlanError(f"training.plan: {path} is no plan of this network: {error}") from error
    except OSError as error:
        raise PlanError(f"training.plan: cannot read {path}: {reason(error)}") from error


def _text(path: Path) -> str:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise PlanError(f"it has more than {MOST_BYTES >> 20} MiB")
        return file.read(MOST_BYTES).decode()


def _checked(record: Any, network: Network) -> SavedPlan:
    if not isinstance(record, dict):
        raise PlanError("it is no mapping of layers to algorithms")
    whole = isinstance(record.get("layers"), dict) and "forward" not in record["layers"]
    layers = record["layers"] if whole else record
    unknown = sorted(set(record) - {"layers", "fftw"}) if whole else []
    if unknown:
        raise PlanError(f"unknown entries {', '.join(unknown[:6])}; it has layers and fftw")
    Plan.from_record(layers, network)
    wisdom = record.get("fftw") if whole else None
    if wisdom is not None:
        fftw.check(wisdom)
    return SavedPlan(layers, wisdom)
