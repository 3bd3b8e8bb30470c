"""Other libraries' names for values of a config (bce, sigmoid, kaiming), and the name znnpy has for each.

Those of losses, activation functions and other kinds that have a registry stand in its entries (`aliases`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ALIASES: Mapping[str, Mapping[str, str]] = {
    "norm": {
        f"{kind}{tail}": kind
        for kind in ("batch", "instance", "group", "layer")
        for tail in ("norm", "_norm")
    }
    | {"grn": "response", "l2": "length"},
    "init": {"kaiming": "he", "glorot": "xavier", "gaussian": "normal"},
    "normalize": {
        **dict.fromkeys(("zscore", "z_score", "standardize"), "mean_std"),
        **dict.fromkeys(("minmax", "min_max"), "range"),
        "percentile": "percentiles",
    },
    "schedule": {
        "cosine_annealing": "cosine",
        "multistep": "step",
        "polynomial": "poly",
        "onecycle": "one_cycle",
        "1cycle": "one_cycle",
    },
}
"""By key: another library's name, and znnpy's name for the same thing; names with another meaning are left out."""

_ENTRIES: dict[str, Mapping[str, Any]] = {}  # by key, the registry whose names are its values


def serve(key: str, entries: Mapping[str, Any]) -> None:
    """Take the aliases of a key's values from the entries of a registry, as they are when somebody asks."""
    _ENTRIES[key] = entries


def every() -> dict[str, dict[str, str]]:
    """Return all aliases by key: another library's name, and znnpy's."""
    found = {key: dict(words) for key, words in ALIASES.items()}
    for key in _ENTRIES:
        found.setdefault(key, {}).update(_registered(key))
    return found


def _registered(key: str) -> dict[str, str]:
    entries = _ENTRIES.get(key, {}).values()
    return {alias: entry.name for entry in entries for alias in getattr(entry, "aliases", ())}


def canonical(key: str, word: str) -> str:
    """Return znnpy's name for the value of a key; a name without an alias unchanged."""
    low = word.lower()
    return ALIASES.get(key, {}).get(low) or _registered(key).get(low, word)


def resolved(data: Any) -> Any:
    """Return a copy of plain config values with aliases replaced, as values of keys and as a `kind` below them."""
    if isinstance(data, Mapping):
        return {key: _value(key, resolved(value)) for key, value in data.items()}
    return [resolved(item) for item in data] if isinstance(data, list | tuple) else data


def _value(key: Any, value: Any) -> Any:
    if isinstance(value, str):
        return canonical(str(key), value)
    kind = value.get("kind") if isinstance(value, dict) else None
    return value | {"kind": canonical(str(key), kind)} if isinstance(kind, str) else value
