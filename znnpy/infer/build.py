"""A model as the config describes it, for training or for one block of a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from znnpy.config.models import Adam, Config, Sgd
from znnpy.engine.model import Model
from znnpy.engine.optimizer import Optimizer
from znnpy.network.types import Network, Triple


def training_model(
    config: Config, network: Network, plan: Mapping[str, Any] | None, record: int = 0
) -> Model:
    """The model that a config trains; `plan` repeats the choices of an earlier start."""
    training, run = config.training, config.run
    return Model(
        network,
        output_shape=training.output_shape,
        batch=training.batch,
        threads=run.threads,
        seed=training.seed,
        conv=training.conv,
        loss=training.loss,
        optimizer=make_optimizer(training.optimizer),
        clip_norm=training.clip_norm,
        max_memory=run.max_memory,
        plan=plan,
        policy=run.policy,
        steal_seed=run.steal_seed,
        record=record,
    )


def block_model(
    config: Config, network: Network, block: Triple, plan: Mapping[str, Any] | None
) -> Model:
    """A model that only predicts, for output blocks of one shape (z, y, x)."""
    return Model(
        network,
        output_shape=block,
        threads=config.run.threads,
        seed=config.training.seed,
        conv=config.training.conv,
        loss=config.training.loss,
        max_memory=config.run.max_memory,
        plan=plan,
        training=False,
    )


def make_optimizer(section: Sgd | Adam) -> Optimizer:
    """The engine's optimiser from the config's."""
    return Optimizer(**section.model_dump())
