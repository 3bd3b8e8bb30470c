"""The digest of a network, by which saved weights are matched to the network that they belong to."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from hashlib import sha256
from typing import Any

from znnpy.layers.types import Init
from znnpy.network.types import Network


def network_digest(network: Network) -> str:
    """Return a digest, 32 hexadecimal digits, of all nodes and edges in order; how parameters start does not count.

    Fields with their default value do not count either: so a field that a later version adds leaves the digests of
    networks that do not use it as they were.
    """
    parts = (network.nodes, network.edges)
    return sha256(repr([[_told(part) for part in some] for some in parts]).encode()).hexdigest()[
        :32
    ]


def _told(value: Any) -> Any:
    """Return the fields of a dataclass that differ from their defaults, by name; any other value unchanged."""
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
