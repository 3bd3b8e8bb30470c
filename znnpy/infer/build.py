"""A model as the config describes it, for training or for one block of a prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from znnpy.config.models import Adam, Config, Sgd
from znnpy.data.scene import Scene
from znnpy.engine.model import Model
from znnpy.engine.optimizer import Optimizer
from znnpy.engine.report import Report
from znnpy.infer.blocks import BUDGET, choose_block, middle, triple, whole_field
from znnpy.infer.predict import VolumePrediction
from znnpy.network.types import Network, Triple


def training_model(
    config: Config,
    network: Network,
    plan: Mapping[str, Any] | None,
    record: int = 0,
    report: Report | None = None,
) -> Model:
    """The model that a config trains; `plan` repeats the choices of an earlier start.

    `record` is the number of task events to keep for a profile, `report` hears of preparations.
    """
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
        precision=training.precision,
        policy=run.policy,
        steal_seed=run.steal_seed,
        record=record,
        report=report,
    )


def block_model(
    config: Config,
    network: Network,
    block: Triple,
    plan: Mapping[str, Any] | None,
    record: int = 0,
) -> Model:
    """A model that only predicts, for output blocks of one shape (z, y, x).

    `record` is the number of task events to keep for a profile.
    """
    return Model(
        network,
        output_shape=block,
        threads=config.run.threads,
        seed=config.training.seed,
        conv=config.training.conv,
        loss=config.training.loss,
        max_memory=config.run.max_memory,
        plan=plan,
        precision=config.training.precision,
        training=False,
        record=record,
    )


def make_optimizer(section: Sgd | Adam) -> Optimizer:
    """The engine's optimiser from the config's."""
    return Optimizer(**section.model_dump())


@contextmanager
def prediction_of(
    config: Config,
    network: Network,
    plan: Mapping[str, Any] | None,
    parameters: Mapping[str, Any],
    scene: Scene,
    block: Triple | None = None,
    most: int | None = None,
) -> Iterator[VolumePrediction]:
    """Everything needed to predict a scene with given weights, as the config's data section says.

    `block` is the output block (z, y, x), chosen by memory when not given; `most` limits the voxels
    to those in the middle. The model is closed at the end, the scene is not.
    """
    corners = {name: scene.corner(volume) for name, volume in scene.images.items()}
    field = whole_field(network, scene.images, corners, config.data.border == "mirror")
    field = field if most is None else middle(field, most)
    limit = config.run.max_memory or BUDGET
    chosen = block or choose_block(network, field.shape, min(BUDGET, limit // 2))
    fitting = triple(min(pair) for pair in zip(chosen, field.shape, strict=True))
    with block_model(config, network, fitting, plan) as model:
        model.set_parameters(parameters)
        yield VolumePrediction(model, scene, field, config.data.normalize)
