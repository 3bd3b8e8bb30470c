"""Colours of kinds of tasks, messages and losses, for light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping

from znnpy.engine.tasks.task_identity import Kind
from znnpy.pictures.palette import PALETTE

# What moves numbers or waits is grey, so that colours are of what computes.
KINDS: Mapping[Kind, str] = {
    Kind.DIRECT: "blue",
    Kind.WINOGRAD: "cyan",
    Kind.PRODUCT: "green",
    Kind.TRANSFORM: "yellow",
    Kind.POOL: "violet",
    Kind.GROW: "olive",
    Kind.SUM: "orange",
    Kind.TRANSFER: "magenta",
    Kind.STATISTICS: "brown",
    Kind.UPDATE: "red",
    Kind.LOSS: "forest",
    Kind.COPY: "gray",
    Kind.DROPOUT: "gray",
    Kind.GATE: "gray",
    Kind.BARRIER: "gray",
    Kind.MESSAGE: "pale",
}
WAYS = {"send": "green", "receive": "cyan", "sum": "violet"}
"""Colours of messages."""
# Colours of kinds where both mean something alike; grey is the graph's own.
LOSSES = {
    "tasks": "blue",
    "slower tasks": "red",
    "dispatch": "violet",
    "stealing": "orange",
    "waking up": "yellow",
    "without a core": "pale",
    "too few ready tasks": "gray",
    "too coarse tasks": "magenta",
    "messages": "cyan",
    "data": "green",
}


def name_of(kind: str) -> str:
    """Return the name of the colour of a kind of task; what only moves numbers or waits is grey."""
    return KINDS[Kind(kind)]


def colour_of(kind: str) -> str:
    """Return the colour of a kind of task on a light page."""
    return PALETTE[name_of(kind)][0]
