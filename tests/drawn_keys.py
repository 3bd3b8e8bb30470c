"""Random keys for an edge of any kind, from what its schema says of each key."""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy.layers.edge_kind import EdgeKind


def drawn_keys(kind: EdgeKind, rng: np.random.Generator, *, flat: bool = False) -> dict[str, Any]:
    """Every key that must be there, and about half of the others that can be drawn.

    `flat`: nothing along z. Raises TypeError for a key that must be there and cannot be drawn: say here how.
    """
    schema = kind.keys.model_json_schema()
    found = {}
    for key, said in schema["properties"].items():
        needed = key in schema.get("required", ())
        value = _value(said, rng, flat)
        if value is None and needed:
            raise TypeError(f"{kind.name}: no way to draw {key}, {said}")
        if value is not None and (needed or rng.random() < 0.5):
            found[key] = value
    return found


def _value(said: dict[str, Any], rng: np.random.Generator, flat: bool) -> Any:
    """A small value that the schema of one key takes; None where it is of no sort that is known here."""
    sorts = [said, *said.get("anyOf", ())]
    sorts += [inner for sort in sorts[1:] for inner in sort.get("anyOf", ())]
    for sort in sorts:
        if "enum" in sort:
            return sort["enum"][int(rng.integers(len(sort["enum"])))]
        if sort.get("type") == "boolean":
            return bool(rng.random() < 0.5)
        if sort.get("type") == "array" and "anyOf" in sort["items"]:  # a padding
            pairs = rng.integers(0, 3, (3, 2)) * (1 if rng.random() < 0.75 else 0)
            return [[0, 0] if flat and not axis else pairs[axis].tolist() for axis in range(3)]
        if sort.get("type") == "array" and sort.get("maxItems") == 3:
            least = sort["items"].get("minimum", 0)
            z, y, x = (int(n) for n in rng.integers(least, least + 3, 3))
            return (least if flat else z, y, x)
        if sort.get("type") == "number":
            low = sort.get("minimum", sort.get("exclusiveMinimum", -1.0))
            high = sort.get("maximum", low + 1.0)
            return float(low + (high - low) * rng.choice([0.25, 0.5, 0.75]))
    return None
