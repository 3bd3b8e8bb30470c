"""Random data of recorded updates are such as the model's losses take."""

import pytest
from znnpy_kernels.simd.lanes import LANES

from znnpy import Execution, Model
from znnpy.learning.losses import LOSSES
from znnpy.profile.recorded_updates import profile_updates, random_batch
from znnpy.simulate.replay import working


@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "malis"])
def test_each_loss_takes_them(loss):
    function = "softmax" if loss in ("focal", "dice") else "linear"  # these two must be told
    net = {"layers": [{"conv": {"channels": 3, "size": 3, "function": function}}]}
    with Model(net, 4, batch=2, threads=1, loss=loss) as model:
        inputs, targets = random_batch(model)
        assert model.step(inputs, targets, learning_rate=0.0) > 0


def test_tasks_cut_for_many_are_recorded_on_one():
    net = {
        "layers": [{"conv": {"channels": LANES, "size": 3}}, {"conv": {"channels": 1, "size": 3}}]
    }
    found = {}
    for workers in (1, 64):
        with Model(
            net, 48, threads=1, conv="direct", execution=Execution(cut_for=workers, record=5000)
        ) as model:
            found[workers] = profile_updates(model, 2)
            tasks = working(model.task_graph_for(8)).sum()
            assert workers == 1 or tasks == working(found[workers].graph).sum()
    assert found[64].tasks_per_update > 1.5 * found[1].tasks_per_update
    assert sum(worker.executed for worker in found[64].workers) == 2 * found[64].tasks_per_update
