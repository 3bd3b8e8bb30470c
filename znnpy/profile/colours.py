"""Colours of kinds of tasks, messages and losses, for light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping

from znnpy.engine.tasks.task_identity import Kind

# On a dark page colours are lighter, to stand out as much.
PALETTE = {
    "blue": ("#2a78d6", "#3987e5"),
    "cyan": ("#12a5c9", "#22bfe0"),
    "green": ("#1baf7a", "#199e70"),
    "yellow": ("#d69200", "#c98500"),
    "violet": ("#4a3aa7", "#9085e9"),
    "orange": ("#eb6834", "#d95926"),
    "magenta": ("#d9628f", "#d55181"),
    "red": ("#e34948", "#e66767"),
    "brown": ("#9a6a3c", "#b58657"),
    "olive": ("#7f8c1f", "#a3b03a"),
    "forest": ("#008300", "#32a032"),
    "gray": ("#8a8984", "#8a8984"),
    "pale": ("#d3d2cb", "#4a4a46"),
}
"""By name: on a light page, on a dark one."""

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
