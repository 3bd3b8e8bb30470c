"""Problems of a config file, each with its place, collected into one error; finds the nearest spelling of a word.

Messages for pydantic's errors are made by `explain.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from znnpy.errors import ConfigError

Key = tuple[str | int, ...]
"""The path of a value in a config: names of keys and indices of lists."""


def dotted(key: Key) -> str:
    """Return a key as users write it: network.layers.0.conv."""
    return ".".join(map(str, key))


@dataclass(frozen=True)
class Place:
    """The place where a value was written: a line of a file (counted from 1), or an override."""

    file: str = ""
    line: int = 0
    column: int = 0
    override: str = ""

    def __str__(self) -> str:
        if self.override:
            return f"--set {self.override}"
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Problem:
    """One mistake in a file: its place, its key, and what would be right."""

    place: Place
    key: Key
    message: str

    def __str__(self) -> str:
        parts = (str(self.place), dotted(self.key), self.message)
        return ": ".join(part for part in parts if part)


class MalformedConfigError(ConfigError):
    """A config with mistakes; `problems` holds all of them in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems), key=_order))
        super().__init__("\n".join(map(str, self.problems)))


def _order(problem: Problem) -> tuple[str, int, str, str]:
    place = problem.place
    return (place.override, place.line, dotted(problem.key), problem.message)


SYNONYMS = {
    "type": "kind",
    "input": "from",
    "output": "to",
    "lr": "learning_rate",
    "batch_size": "batch",
    "max_iter": "iterations",
    "epochs": "iterations",
    "features": "channels",
    "images": "channels",
    "dilation": "sparsity",
    "activation": "function",
    "kernel_size": "size",
    "msra": "he",
    "rectify_linear": "relu",
    "logistics": "logistic",
    "minmax": "unit",
    "min_max": "unit",
    "reflect": "mirror",
    "optimiser": "optimizer",
    "scheduler": "schedule",
    "lr_scheduler": "schedule",
    "base_batch_size": "base_batch",
    "lr_base_size": "base_batch",
    "filters": "channels",
    "out_channels": "channels",
    "max_epochs": "iterations",
    "num_epochs": "iterations",
    "max_steps": "iterations",
    "patch_size": "output_shape",
    "grad_clip": "clip_norm",
    "num_workers": "threads",
    "warmup_steps": "warmup",
    "warmup_iterations": "warmup",
}


def nearest(word: str, allowed: Sequence[str]) -> str | None:
    """Return the allowed word that was probably meant; None if none is near."""
    by_case = {name.lower(): name for name in allowed}
    meant = SYNONYMS.get(word.lower())
    if meant in allowed:
        return meant
    near = get_close_matches(word.lower(), list(by_case), n=1, cutoff=0.6)
    return by_case[near[0]] if near else None


def suggestion(word: str, allowed: Sequence[str]) -> str:
    """Return `; did you mean 'x'?` and the allowed words; empty where there is nothing to suggest."""
    near = nearest(word, allowed)
    hint = f"; did you mean '{near}'?" if near else ""
    return f"{hint} (allowed: {', '.join(allowed)})" if allowed else hint
