"""A model of another program as znnpy says it: a config, and the weights of each of its members."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class ImportedModel:
    """What a source found: `title` says what it is; `config` as plain values, without `run.directory`.

    `members`: by name, what reads the parameters of each net whose logits are averaged, by their names here; all
    have been checked for names and shapes when they are read. `notes`: lines for the user.
    `origin`: the class that the net is, as `classes.origin` says it.
    """

    title: str
    config: Mapping[str, Any]
    members: Mapping[str, Callable[[], Arrays]]
    notes: Sequence[str] = ()
    origin: Mapping[str, Any] | None = None
