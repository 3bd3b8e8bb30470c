"""A short name of what a network computes, by which weights know the network that they are of."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from hashlib import sha256
from typing import Any

from znnpy.layers.types import Init
from znnpy.network.types import Network


def network_digest(network: Network) -> str:
    """Names all nodes and edges with their numbers, in order, but for the values that parameters start with.

    Numbers that have their defaults do not count: one that a later version brings leaves the names of networks
    as they were that do not use it.
    """
    parts = (network.nodes, network.edges)
    return sha256(repr([[_told(part) for part in some] for some in parts]).encode()).hexdigest()[
        :32
    ]


def _told(value: Any) -> Any:
    """Of an entry its fields that say something; any other value as it is."""
    if not is_dataclass(value):
        return value
    said = ((field.name, getattr(value, field.name), _default(field)) for field in fields(value))
    return [
        (name, _told(own))
        for name, own, usual in sorted(said, key=lambda it: it[0])
        if own != usual and not isinstance(own, Init)
    ]


def _default(field: Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is MISSING else made()
