"""The odd step of an update is what declaring it anew gives."""

import numpy as np
import pytest
import random_networks as rn
from model_settings import model_of

from znnpy.engine.step_tasks import all_steps, declare_update


def described(step):
    """All that a task is, with its buffers by name."""
    return [
        (
            task.kernel.name, [*task.arguments], task.what, task.cost, task.group, task.stage,
            task.phase, [key[0].name for key in task.between], task.urgent,
            [it.name for it in task.anew], task.divides, len(task.more),
            *[[(it.buffer.name, *it[1:]) for it in regions] for regions in (task.reads, task.writes)],
        )
        for task in step
    ]  # fmt: skip


@pytest.mark.share(10)
@pytest.mark.parametrize("microbatch", [2, 1])
@pytest.mark.parametrize("seed", range(8))
def test_of_random_networks(seed, microbatch):
    network, output = rn.random_network(seed)
    with model_of(
        network, output, batch=2, microbatch=microbatch, loss="square", clip_norm=1.0
    ) as model:
        engine = model._engine
        build, settings = engine._build, engine.settings
        even, odd = (declare_update(build, settings, parity, None) for parity in range(2))
        made = all_steps(build, [even], "update")
    assert described(made[0]) == described(even)
    assert described(made[1]) == described(odd)
    same = np.array([mine is yours for mine, yours in zip(*made, strict=True)])
    assert same.any()
    assert not same.all()
