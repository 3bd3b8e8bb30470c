"""Losses as tests name them."""

from __future__ import annotations

from typing import Any

from loss_cases import cases

from znnpy.learning.loss import Objective
from znnpy.learning.losses import LOSSES, loss_keys
from znnpy.learning.readings import Reading


def objective_of(name: str, reading: Reading | None = None, **keys: Any) -> Objective:
    """A loss with these keys, of what it takes outputs for first unless told."""
    loss, found = LOSSES[loss_keys(name).kind], LOSSES[name].keys(kind=name, **keys)
    return Objective(loss, found, reading or next(iter(loss.readings)))


def every_objective() -> list[Objective]:
    """Every loss of `loss_cases`."""
    return [
        objective_of(reading=reading, name=keys["kind"], **_but_kind(keys))
        for keys, function in cases()
        for reading in LOSSES[keys["kind"]].readings
        if function in (*reading.functions, "linear")
    ]


def _but_kind(keys: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if key != "kind"}
