"""How long tasks are decides nothing else: the same bits for tasks as short and as long as can be."""

import numpy as np
import pytest
import random_networks as rn

from znnpy import Execution, Model, load_network
from znnpy.engine.tasks import runs
from znnpy.geometry import fit
from znnpy.plan import Grain

LAYERS = [
    {"conv": {"channels": 17, "size": 3, "function": "relu"}},
    {"max_filter": 2},
    {"conv": {"channels": 33, "size": 3, "function": "elu", "norm": "batch"}},
    {"conv": {"channels": 16, "size": [1, 3, 3], "function": "relu", "padding": "same"}},
    {"conv": {"channels": 3, "size": 3}},
]
CUBES = [
    *({"conv": {"channels": channels, "size": 3, "function": "relu"}} for channels in (17, 33, 18)),
    {"max_filter": [1, 2, 2]},
    {"conv": {"channels": 4, "size": 3, "function": "logistic"}},
]
# Long tasks go through all that few workers have in one.
SHORT, LONG = Grain(1e-7, 1e-7), Grain(1.0, 1.0, joined=1)
PARTED = Grain(1.0, 1e-7, joined=1)  # passes in parts, of all samples, blocks or pieces in one
MANY = Grain(1e-7, 1e-7, 64)
RATE = 2.0**60
# Of network 17 thousands of short tasks would each wait for thousands: 7 minutes to find what for.
SEEDS = [seed for seed in range(24) if seed != 17]


def plan_of(network, algorithm):
    found = {}
    for edge in network.edges:
        if edge.kind == "conv":
            cubes = edge.size == (3, 3, 3) and edge.source != "input"
            own = "direct" if algorithm == "winograd" and not cubes else algorithm
            found[edge.name] = {"reason": "", "forward": own, "gradient": own, "weight": own}
            if own == "spectral":
                tile = [1 if taps == 1 else 8 for taps in edge.size]
                found[edge.name] |= dict.fromkeys(
                    ("forward_tile", "gradient_tile", "weight_tile"), tile
                )
    return found


def computed(network, output, monkeypatch, grain, joined, **how):
    """Parameters after an update by tasks of this length, all leaves of a part in one or none.

    With a rate by which each is its gradient's negative, as large as that is: others hide its last bits.
    """
    monkeypatch.setattr(Grain, "of", classmethod(lambda cls, work, workers: grain))
    monkeypatch.setattr(runs, "TASKS_EACH", 1e-9 if joined else 1e9)
    monkeypatch.setattr(runs, "MOST_SECONDS", 1e9)
    monkeypatch.setattr(runs, "SHORT_SECONDS", 0.0)
    geometry = fit(network, output)
    with Model(network, output, 2, loss="square", **how) as model:
        model.set_parameters(rn.random_parameters(network, 1))
        x = rn.random_inputs(network, geometry, 0, 2)
        target = rn.random_targets(network, geometry, 0, 2)
        model.step(x, target, learning_rate=RATE)
        return model.parameters


@pytest.mark.share(8)
@pytest.mark.quick(2)
@pytest.mark.lanes
@pytest.mark.parametrize("algorithm", ["direct", "winograd", "spectral", "fft"])
@pytest.mark.parametrize(
    ("layers", "output"), [(LAYERS, (7, 8, 8)), (LAYERS, (1, 21, 30)), (CUBES, (7, 8, 8))]
)
def test_chains_by_each_algorithm(algorithm, layers, output, monkeypatch):
    layers = layers if output[0] > 1 else [flat(layer) for layer in layers]
    network = load_network({"layers": layers})
    how = {"threads": 3, "plan": plan_of(network, algorithm)}
    short = computed(network, output, monkeypatch, SHORT, False, **how)
    for grain, joined in ((LONG, False), (LONG, True), (PARTED, False), (MANY, True)):
        other = computed(network, output, monkeypatch, grain, joined, **how)
        for name, values in short.items():
            assert np.array_equal(values, other[name]), (name, joined)


def flat(layer):
    if "conv" not in layer:
        return {"max_filter": [1, 2, 2]}
    return {"conv": layer["conv"] | {"size": [1, 3, 3]}}


@pytest.mark.share(14)
@pytest.mark.parametrize("seed", SEEDS)
def test_networks_of_all_kinds(seed, monkeypatch):
    network, output = rn.random_network(seed)
    short = computed(network, output, monkeypatch, SHORT, False, threads=2, conv="spectral")
    for grain, joined in ((LONG, True), (MANY, False)):
        other = computed(network, output, monkeypatch, grain, joined, threads=2, conv="spectral")
        for name, values in short.items():
            assert np.array_equal(values, other[name]), (name, joined)


def test_cut_for_many_there_are_more_tasks():
    network = load_network({"layers": LAYERS})
    count = {}
    for workers in (1, 16, 256):
        execution = Execution(cut_for=workers)
        with Model(network, 24, threads=1, conv="direct", execution=execution) as model:
            count[workers] = model.task_graph.size
    assert count[1] < count[16] < count[256]
