"""Plans as data: saved with a run as `plan.json`, read back and checked, also from the file of `training.plan`.

A plan file replaces measurements, so that any cache gives the same bits. It is JSON with `layers`, as
`Plan.to_record` makes them, and, where a layer runs by whole-image FFT, `fftw`: FFTW's wisdom. The `plan.json` of a
run, layers alone, is read too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from znnpy.errors import PlanError, reason
from znnpy.network.types import Network, Triple
from znnpy.plan import fftw
from znnpy.plan.algorithms import ALGORITHMS
from znnpy.plan.cost import convolutions, is_depthwise
from znnpy.plan.types import MARCHES, PASSES, AlgorithmName, LayerPlan

MOST_BYTES = 1 << 24
"""Of a plan file: larger ones are refused unread. A plan takes some hundred bytes a layer."""


@dataclass(frozen=True)
class Plan:
    """The choices that change bits, saved with a run: they do not depend on the number of threads."""

    layers: Mapping[str, LayerPlan]

    def to_record(self) -> dict[str, Any]:
        """Return the JSON-able form that `from_record` reads."""
        return {name: _layer_record(layer) for name, layer in self.layers.items()}

    @classmethod
    def from_record(cls, record: Mapping[str, Mapping[str, Any]], network: Network) -> Plan:
        """Check and read a saved plan; PlanError if it is of another network or version."""
        edges = {edge.name: edge for edge in convolutions(network)}
        if not isinstance(record, Mapping):
            raise PlanError(f"the saved plan is a {type(record).__name__}, not a table of layers")
        # Missing layers as well as unknown ones: a plan of another network must not be mixed with
        # choices of this machine, or the bits would be nobody's.
        if set(record) != set(edges):
            raise PlanError(
                f"the saved plan is for layers {sorted(record)}, the network has {sorted(edges)}"
            )
        plan = cls({name: _read_layer(name, layer) for name, layer in record.items()})
        for name, edge in edges.items():
            for which in PASSES:
                # Saved plans may be edited by hand, so what `choose` would never combine is refused
                # here.
                algorithm = ALGORITHMS[plan.layers[name].method(which).algorithm]
                if is_depthwise(edge, network):
                    if not algorithm.traits.depthwise:
                        text = "filters of one channel each run by depthwise only"
                        raise PlanError(f"the saved plan of {name!r}: {text}")
                elif refusal := algorithm.refusal(edge.size, edge.stride):
                    raise PlanError(f"the saved plan of {name!r}: {refusal}")
                if edge.kind == "conv_transpose" and not algorithm.traits.transposes:
                    text = f"{edge.kind} runs by direct and spectral only"
                    raise PlanError(f"the saved plan of {name!r}: {text}")
        return plan


def _layer_record(layer: LayerPlan) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for which in PASSES:
        method = layer.method(which)
        record[which] = method.algorithm
        if method.tile:
            record[f"{which}_tile"] = list(method.tile)
        if method.march:
            record[f"{which}_march"] = method.march
    return record | {"reason": layer.reason}


def _read_layer(name: str, layer: Mapping[str, Any]) -> LayerPlan:
    if not isinstance(layer, Mapping) or not isinstance(layer.get("reason", ""), str):
        raise PlanError(f"the saved plan of {name!r} is no table of passes")
    values, known = dict(layer), list(ALGORITHMS)
    for which in PASSES:
        algorithm = values.get(which)
        if not isinstance(algorithm, str) or algorithm not in known:
            raise PlanError(
                f"the saved plan asks for {algorithm!r} in the {which} pass of "
                f"{name!r}; this version knows {', '.join(known)}"
            )
        # Popped and set again: what is left in `values` beside the fields is unknown.
        tile = values.pop(f"{which}_tile", None)
        values[f"{which}_tile"] = _read_tile(name, which, tile, algorithm)
        march = values.get(f"{which}_march")
        marches = MARCHES if ALGORITHMS[algorithm].traits.marches else ()
        # Compared one by one: what JSON has instead of a word may have no hash.
        if march is not None and not any(march == it for it in marches):
            raise PlanError(
                f"the saved plan has march {march!r} in the {which} pass of {name!r}; "
                f"{algorithm} has {' and '.join(marches) or 'none'}"
            )
    unknown = sorted(set(values) - {field.name for field in fields(LayerPlan)})
    if unknown:
        raise PlanError(f"the saved plan of {name!r} has unknown entries {unknown}")
    return LayerPlan(**values)


def _read_tile(name: str, step: str, tile: Any, algorithm: AlgorithmName) -> Triple | None:
    sizes = ALGORITHMS[algorithm].traits.tile_sizes
    if not sizes and tile is None:
        return None
    good = sizes and isinstance(tile, list | tuple) and len(tile) == 3
    # `type`, not isinstance: JSON's true would pass as 1.
    if not good or any(type(size) is not int or size not in sizes for size in tile):
        raise PlanError(
            f"the saved plan has tile {tile!r} in the {step} pass of {name!r}; a {algorithm} pass has "
            f"{f'three sizes of {sizes}' if sizes else 'none'}"
        )
    z, y, x = tile
    return z, y, x


@dataclass(frozen=True)
class SavedPlan:
    """Layers by name as records, and FFTW's wisdom if any of them needs it."""

    layers: Mapping[str, Any]
    fftw: str | None = None


def saved_plan(plan: Plan) -> SavedPlan:
    """Return a plan with this process's FFTW wisdom; call it once its FFTs are planned."""
    by_fftw = [name for name, algorithm in ALGORITHMS.items() if algorithm.traits.plans_ffts]
    needs = any(layer.uses(name) for layer in plan.layers.values() for name in by_fftw)
    return SavedPlan(plan.to_record(), fftw.known() if needs else None)


def to_text(saved: SavedPlan) -> str:
    """Return the content of a plan file."""
    record = {"layers": dict(saved.layers)} | ({"fftw": saved.fftw} if saved.fftw else {})
    # Sorted, so that files of the same plan are equal and differences can be read.
    return json.dumps(record, indent=2, sort_keys=True) + "\n"


def read_plan(path: Path, network: Network) -> SavedPlan:
    """Read a plan file; PlanError, naming it, if it is no plan or of another network."""
    try:
        return _checked(json.loads(_text(path)), network)
    # ValueError: no JSON, or no UTF-8. RecursionError: lists nested thousands deep.
    except (PlanError, ValueError, RecursionError) as error:
        raise PlanError(f"training.plan: {path} is no plan of this network: {error}") from error
    except OSError as error:
        raise PlanError(f"training.plan: cannot read {path}: {reason(error)}") from error


def _text(path: Path) -> str:
    with path.open("rb") as file:
        # The size of the open file: a path could be exchanged between two looks.
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise PlanError(f"it has more than {MOST_BYTES >> 20} MiB")
        return file.read(MOST_BYTES).decode()


def _checked(record: Any, network: Network) -> SavedPlan:
    if not isinstance(record, dict):
        raise PlanError("it is no mapping of layers to algorithms")
    # A run's `plan.json` is the layers themselves, and a layer may be named "layers": then that
    # entry has passes.
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
