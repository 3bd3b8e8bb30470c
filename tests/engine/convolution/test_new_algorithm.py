"""An algorithm that is no part of znnpy: two modules and two lines, and it is used as any other."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from znnpy import Model, load_network
from znnpy.engine.convolution import direct
from znnpy.engine.convolution.direct.transposed_filters import transpose
from znnpy.engine.convolution.passes import CONV_EMITTERS
from znnpy.engine.tasks.task_identity import Pass, identities
from znnpy.errors import PlanError
from znnpy.geometry import fit
from znnpy.infer.forward_costs import forward_plan
from znnpy.plan import ALGORITHMS, PASSES, Method, choose
from znnpy.plan.algorithms import Traits
from znnpy.plan.algorithms import direct as direct_plan
from znnpy.plan.choose import ESTIMATED, _candidates, candidates, estimated_costs
from znnpy.profile.command import flops_by_task

# A thousand times as fast as direct convolution, says its estimate, whose tasks it makes; for blocks alone.
FASTER = SimpleNamespace(
    traits=Traits(backward_functions=("relu",), reads_halos=True),
    refusal=lambda size, stride: "" if size == (3, 3, 3) else "fast takes filters of 3 x 3 x 3",
    between_planar=lambda shape: (),
    told=lambda shape: [Method("fast")],
    candidates=lambda shape: [Method("fast")],
    patch_methods=lambda shape, most_seconds: [Method("fast")],
    costs=lambda shape, tile: {
        part: seconds / 1000 for part, seconds in direct_plan.costs(shape, tile).items()
    },
    patch_seconds=lambda shape, tile: direct_plan.patch_seconds(shape, tile) / 1000,
)
TASKS = SimpleNamespace(**{name: getattr(direct, name) for name in direct.__all__})
TASKS.derive = partial(transpose, serves=Pass.BACKWARD)

LAYERS = [
    {"conv": {"channels": 20, "size": 3, "function": "relu"}},
    {"conv": {"channels": 17, "size": 3, "function": "relu"}},
    {"conv": {"channels": 16, "size": [1, 3, 3]}},
]
NET = {"input": 1, "layers": LAYERS}
DIRECT, FAST = (dict.fromkeys(PASSES, name) for name in ("direct", "fast"))
PLAN = {"conv1": DIRECT, "conv2": FAST, "conv3": DIRECT}


@pytest.fixture(autouse=True)
def listed(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "fast", FASTER)
    monkeypatch.setitem(CONV_EMITTERS, "fast", TASKS)
    _candidates.cache_clear()  # what was asked without it
    yield
    _candidates.cache_clear()


def test_plans_take_it_where_it_is_cheapest():
    network = load_network(NET)
    geometry = fit(network, (6, 7, 8))

    def estimate(shape):
        return estimated_costs(shape, candidates(shape)), ESTIMATED

    plan = choose(network, geometry, 1, "auto", estimate)
    assert [layer.forward == "fast" for layer in plan.layers.values()] == [False, True, False]
    patches = forward_plan(network, geometry, "auto")
    assert [layer.forward == "fast" for layer in patches.layers.values()] == [False, True, False]


def test_a_saved_plan_runs_by_it_and_its_operations_are_counted():
    weights = []
    for plan in (PLAN, dict.fromkeys(PLAN, DIRECT)):
        with Model(NET, (4, 5, 6), threads=2, seed=3, plan=plan) as model:
            random = np.random.default_rng(1)
            x = random.random((1, 1, *model.input_shape), np.float32)
            target = random.random((1, 16, 4, 5, 6), np.float32)
            for _ in range(3):
                model.step(x, target, learning_rate=0.01)
            weights.append(b"".join(array.tobytes() for array in model.parameters.values()))
            flops = flops_by_task(model)
            own = {what for what in identities(model.task_graph) if what.owner == "conv2"}
            assert len(own & set(flops)) == 3
    assert weights[0] == weights[1]


def test_a_plan_of_a_layer_that_it_refuses_says_so():
    with pytest.raises(PlanError, match="'conv3': fast takes filters of 3 x 3 x 3"):
        Model(NET, (4, 5, 6), plan=PLAN | {"conv3": FAST})
