"""Every loss with keys that are not its defaults, on outputs with each function that it takes."""

from __future__ import annotations

from typing import Any

from znnpy.learning.losses import LOSSES

KEYS: dict[str, list[dict[str, Any]]] = {
    "softmax": [{}, {"label_smoothing": 0.1, "class_weights": [0.5, 2.0, 1.0]}],
    "focal": [{}, {"gamma": 1.5, "alpha": 0.25}],
    "dice": [{}, {"smooth": 1.0, "batch": True, "include_background": False}],
    "bce_dice": [{"bce": 0.5, "dice": 2.0}],
    "malis": [{"positive": 0.3}],
    "ce_dice": [{"ce": 0.5, "dice": 2.0, "include_background": False}],
}


def cases() -> list[tuple[dict[str, Any], str]]:
    """Keys of a loss, and the function of an output of 3 images."""
    return [
        ({"kind": name, **keys}, reading.functions[0] if reading.functions else "linear")
        for name, loss in LOSSES.items()
        for keys in KEYS.get(name, [{}])
        for reading in loss.readings
    ]


def named(case: Any) -> str:
    """A case as tests show it."""
    return "-".join(map(str, case.values())) if isinstance(case, dict) else str(case)
