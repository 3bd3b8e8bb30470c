"""The best of a run's validations by the chosen score, and early stopping, which ends a run without a better one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from znnpy.config.models import Config
from znnpy.config.problems import suggestion
from znnpy.data.config_volumes import make_targets, of_values
from znnpy.errors import ConfigError
from znnpy.metrics.metric import METRICS, Metric, Of
from znnpy.network import Network, training_losses
from znnpy.train.log import Record

# What every validation has, without a metric: whether higher is better.
_OWN = {"loss": False, "voxel_error": False, "accuracy": True}


@dataclass
class Best:
    """The best validation so far, after `iteration` updates, and how many came after it; -1 before the first."""

    score: str = "loss"
    higher: bool = False
    patience: int | None = None
    iteration: int = -1
    value: float = 0.0
    since: int = 0

    def add(self, iteration: int, record: Record) -> bool:
        """Take the next validation into account; return whether it is the best."""
        value: Any = record.get(self.score)
        # A log may have been edited; a metric may have no value.
        known = isinstance(value, float) and math.isfinite(value)
        if known and (self.iteration < 0 or self._better(value)):
            self.iteration, self.value, self.since = iteration, value, 0
            return True
        self.since += 1
        return False

    def _better(self, value: float) -> bool:
        # An equal one is no better: what was as good earlier stays.
        return value > self.value if self.higher else value < self.value

    def take(self, records: Iterable[Record]) -> None:
        """Take the validations among records of a log into account."""
        for record in records:
            if isinstance(found := record.get("validation"), dict):
                self.add(record["iteration"], found)

    @property
    def enough(self) -> bool:
        """Whether so many validations were no better that training ends."""
        return self.patience is not None and self.since >= self.patience


def best_of(config: Config, network: Network) -> Best:
    """Return the best of no validations yet; ConfigError for a score that validations of a network do not have."""
    validation = config.training.validation
    if validation.patience is not None and not config.data.validation:
        place = config.place("training", "validation", "patience")
        raise ConfigError(f"{place}: needs a volume in data.validation, whose score it waits for")
    metric, name = metric_of(config, network), validation.score
    return Best(name, metric.higher if metric else _OWN[name], validation.patience)


def metric_of(config: Config, network: Network) -> Metric | None:
    """Return the metric of the chosen score, None for one that every validation has; ConfigError as `best_of`."""
    name, classes = config.training.validation.score, _classes(config, network)
    if name == "loss" or (name == "voxel_error" and not of_values(config, network)):
        return None
    # The first output is scored, whatever others learn beside it.
    first = make_targets(config, network)[network.outputs[0].name]
    has: set[Of] = {"values"} if first.values else {"decisions"}
    has |= {"classes"} if classes else set()
    scores = {it.name: it for it in METRICS.values() if it.of in has and it.of_patches}
    if name not in scores:
        allowed = ["loss", *scores]
        place = config.place("training", "validation", "score")
        raise ConfigError(
            f"{place}: {name!r} is no score of patches of this network{suggestion(name, allowed)}"
        )
    # Of a single output of classes validations have it already.
    single = name == "accuracy" and len(network.outputs) == 1
    return None if single else scores[name]


def _classes(config: Config, network: Network) -> bool:
    first = network.outputs[0].name
    return training_losses(config, network)[first].reading.whole_voxels
