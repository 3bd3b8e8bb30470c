"""`znnpy check --save-plan`: writes the plan that training would choose, after measuring."""

from __future__ import annotations

from pathlib import Path

from znnpy.atomic_files import write_text
from znnpy.config.models import Config
from znnpy.engine.autotune import planned
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.feature_maps import Layout
from znnpy.engine.memory_planning import planned_memory
from znnpy.engine.step_tasks import Settings
from znnpy.geometry import trained_geometry
from znnpy.infer.config_model import pinned_plan, plan_room
from znnpy.network import trained_network, training_losses
from znnpy.plan.record import saved_plan, to_text


def save_plan(config: Config, path: Path) -> None:
    """Write the plan of a config's updates for `training.plan`; measures layers that are not in wisdom."""
    training = config.training
    network = trained_network(config)
    geometry = trained_geometry(config, network)
    known = pinned_plan(config, network)
    sizes = network, geometry, training.at_once
    with plan_room(config, network) as most:
        plan = planned(*sizes, training.conv, known, max_memory=most)
    layout = Layout(network, geometry, plan, training.at_once, True, training.seed, 1)
    losses = training_losses(config, network)
    optimizer = Optimizer.of(training.optimizer)
    planned_memory(layout, Settings(losses, optimizer, training.clip_norm, 1))  # plans FFTs
    write_text(path, to_text(saved_plan(plan)))
