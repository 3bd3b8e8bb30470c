"""Policies on whole networks: the same bits by all, and what they come to on more workers."""

from pathlib import Path

import numpy as np
import pytest
from model_settings import model_of

from znnpy.engine import Execution, Model
from znnpy.engine.estimate import estimated_graph
from znnpy.graph import POLICIES, GraphBuilder
from znnpy.network import load_network
from znnpy.simulate import Replay, simulate

NETWORKS = Path(__file__).parents[2] / "scripts" / "networks"
SMALL = {
    "layers": [
        {"conv": {"channels": 5, "size": 3, "function": "relu"}},
        {"max_filter": 2},
        {"conv": {"channels": 4, "size": 3, "function": "tanh"}},
        {"conv": {"channels": 1, "size": 1}},
    ]
}


def trained(policy, threads):
    rng = np.random.default_rng(0)
    with Model(
        SMALL,
        output_shape=(9, 9, 9),
        threads=threads,
        conv="direct",
        execution=Execution(policy=policy),
    ) as model:
        shape = model.input_shape
        for _ in range(5):
            x = rng.standard_normal((1, 1, *shape)).astype(np.float32)
            target = (rng.random((1, 1, 9, 9, 9)) > 0.5).astype(np.float32)
            model.submit(x, target, learning_rate=0.1)
        model.drain()
        return {name: values.tobytes() for name, values in model.parameters.items()}


@pytest.mark.quick(4)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("threads", [0, 3])
def test_every_policy_gives_the_same_bits(policy, threads):
    assert trained(policy, threads) == trained("critical-path", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "output", "wins"), [("inception", (16, 16, 16), 1.2), ("vd2d3d", (1, 4, 4), 1.0)]
)
def test_critical_path_beats_layers_and_is_near_the_best(name, output, wins):
    network = load_network(NETWORKS / f"{name}.yaml")
    graph = estimated_graph(network, output, conv="direct", workers=16)
    builder = GraphBuilder.of(graph)
    seconds = {
        policy: simulate(Replay.of(builder.build(policy)), 16, steps=6).seconds
        for policy in POLICIES
    }
    assert seconds["layers"] >= wins * seconds["critical-path"]
    assert seconds["critical-path"] <= 1.03 * min(seconds.values())


def test_graphs_for_other_threads_are_those_of_models_on_them():
    chosen = {"conv": "spectral", "output_shape": (9, 9, 9)}
    with model_of(SMALL, threads=1, **chosen) as one, model_of(SMALL, threads=2, **chosen) as two:
        graphs = [two.task_graph, one.task_graph_for(2)]
        many, few = one.task_graph_for(64), one.task_graph
    assert graphs[0].names == graphs[1].names
    assert graphs[0].successors.tolist() == graphs[1].successors.tolist()
    work = [[k for k in graph.kinds if k != "gate"] for graph in (few, many)]
    assert len(work[1]) >= len(work[0])
    # Leaves that another graph joins have the same estimates; gates are as good as none.
    assert many.work == pytest.approx(few.work, rel=0.01)


def test_a_step_knows_its_loss_before_its_gradients():
    with Model(
        SMALL, output_shape=(9, 9, 9), threads=1, conv="direct", execution=Execution(record=4096)
    ) as model:
        x = np.ones((1, 1, *model.input_shape), np.float32)
        model.step(x, np.zeros((1, 1, 9, 9, 9), np.float32))
        labels = [
            model.task_graph.tasks[task].label for task in model.recording()[0].events["task"]
        ]
    loss = next(i for i, it in enumerate(labels) if "loss sum" in it)
    gradients = [i for i, it in enumerate(labels) if "backward" in it or "weight gradient" in it]
    assert loss < min(gradients)
