"""Filters that are updated in the tasks that make their gradients: the same bits, and only where nobody else waits."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from chains import winograd_chain, winograd_plan

from znnpy import Execution, Hardware, Model, Optimizer, Training
from znnpy.engine import memory_planning
from znnpy.engine.convolution.winograd import gradient_stages, weight_gradients
from znnpy.engine.memory.limits import TooLargeError
from znnpy.engine.tasks.task_identity import Identity, Part, Pass, identities

AROUND = ((1, 1),) * 3
OUTPUT = (4, 4, 4)
NET = winograd_chain((48, 48, 56), padding=AROUND)
# Layers of 16 channels are cubes of one range; those of 48 are shallow.
SMALL = winograd_chain((16, 16, 24), padding=AROUND)
STRIDED = replace(
    SMALL,
    edges=tuple(
        replace(edge, stride=(2, 2, 2)) if edge.name == "c1" else edge for edge in SMALL.edges
    ),
)
UPDATES = 3


def from_size(least, monkeypatch):
    """Let filters of so many bytes be updated at once, in tasks of several panels whose gradients take turns."""
    monkeypatch.setattr(weight_gradients, "LEAST_UPDATED", least)
    monkeypatch.setattr(gradient_stages, "UPDATED_BYTES", 1)
    monkeypatch.setattr(gradient_stages, "SUMS_TASKS", 2)


def updated(net, least, monkeypatch, *, threads=1, optimizer=None, batch=1, training=True):
    """Parameters, averages and gradients as bytes after some updates, and tasks of updates by parameter."""
    from_size(least, monkeypatch)
    rng = np.random.default_rng(0)
    with Model(net, OUTPUT, batch=batch, threads=threads, plan=winograd_plan(net), loss="square", seed=1,
               optimizer=optimizer or Optimizer("sgd", momentum=0.9, weight_decay=0.01), training=training,
               execution=Execution(steal_seed=threads)) as model:  # fmt: skip
        for _ in range(UPDATES):
            x = rng.standard_normal((batch, 1, *model.input_shape)).astype(np.float32)
            target = rng.standard_normal((batch, net.nodes[-1].channels, *OUTPUT)).astype(
                np.float32
            )
            model.step(x, target, learning_rate=0.01)
        found = dict(model.parameters) | {
            f"gradient of {name}": it for name, it in model.loss_and_gradients(x, target)[1].items()
        }
        if optimizer and optimizer.ema:
            found |= {f"average of {name}": it for name, it in model.averaged_parameters.items()}
        tasks = identities(model.task_graph)
    left = Counter(what.owner for what in tasks if what.serves is Pass.UPDATE)
    return {name: np.array(array).tobytes() for name, array in found.items()}, left


@pytest.mark.parametrize("net", [NET, SMALL, STRIDED], ids=["shallow", "cubes", "strided"])
def test_updates_have_the_bits_of_those_after_all_gradients(net, monkeypatch):
    expected, kept = updated(net, 1 << 40, monkeypatch)
    assert {"c1", "c2"} <= set(kept)
    for threads in (1, 2):
        found, left = updated(net, 0, monkeypatch, threads=threads)
        assert not {"c1", "c2"} & set(left)
        assert found == expected


def test_gradients_before_any_update(monkeypatch):
    """They have tasks of their own, which no plan of memory has declared."""
    found = []
    for least in (1 << 40, 0):
        from_size(least, monkeypatch)
        with Model(
            NET, OUTPUT, threads=2, plan=winograd_plan(NET), loss="square", seed=1, training=True
        ) as model:
            x = (
                np.random.default_rng(0)
                .standard_normal((1, 1, *model.input_shape))
                .astype(np.float32)
            )
            target = np.ones((1, 56, *OUTPUT), np.float32)
            first = model.loss_and_gradients(x, target)[1]
            first = {name: np.array(array).tobytes() for name, array in first.items()}
            model.step(x, target, learning_rate=0.0)
            again = model.loss_and_gradients(x, target)[1]
            assert first == {name: np.array(array).tobytes() for name, array in again.items()}
            found.append(first)
    assert found[0] == found[1]


def behind(graph, task):
    """The tasks of an update that wait for a task."""
    found, left, starts = set(), [task], graph.successor_starts
    while left:
        at = left.pop()
        edges = range(starts[at], starts[at + 1])
        new = {int(graph.successors[edge]) for edge in edges if not graph.carried[edge]} - found
        found |= new
        left += new
    return found


def test_tasks_of_a_layer_wait_for_none_of_their_like(monkeypatch):
    """Gradients that they make for themselves lie side by side; of layers so wide some would lie at one place."""
    net = winograd_chain((128,) * 4, functions=("relu",) * 4, padding=AROUND)
    from_size(0, monkeypatch)
    monkeypatch.setattr(gradient_stages, "SUMS_TASKS", 8)
    with Model(
        net, OUTPUT, threads=2, plan=winograd_plan(net), loss="square", training=True
    ) as model:
        graph = model.task_graph
    for name in ("c1", "c2"):
        sums = Identity(name, Pass.WEIGHT, Part.WINOGRAD)
        alike = [number for number, what in enumerate(identities(graph)) if what == sums]
        own = {*alike[: len(alike) // 2]}  # the even update's; the odd one's follow
        assert len(own) > 2
        assert not any(own & behind(graph, task) for task in own)


def test_moving_averages_go_with_them(monkeypatch):
    optimizer = Optimizer("adamw", ema=0.9)
    expected, _ = updated(SMALL, 1 << 40, monkeypatch, optimizer=optimizer)
    found, left = updated(SMALL, 0, monkeypatch, optimizer=optimizer)
    assert not {"c1", "c2"} & set(left)
    assert found == expected


@pytest.mark.parametrize(
    "kept",
    [
        {"optimizer": Optimizer("lamb")},
        {"training": Training(clip_norm=1.0)},
        {"batch": 2, "training": Training(microbatch=1)},
    ],
    ids=["norms of layers", "clipping", "microbatches"],
)
def test_gradients_that_others_wait_for_are_kept(kept, monkeypatch):
    _, left = updated(SMALL, 0, monkeypatch, **kept)
    assert {"c1", "c2"} <= set(left)


def planned(least, monkeypatch, *, max_memory=None, training=True, batch=1):
    """Bytes of a model on one thread."""
    monkeypatch.setattr(weight_gradients, "LEAST_UPDATED", least)
    with Model(SMALL, OUTPUT, batch=batch, threads=1, plan=winograd_plan(SMALL), loss="square",
               training=training, hardware=Hardware(max_memory=max_memory)) as model:  # fmt: skip
        return model.memory


def test_memory_of_several_microbatches_is_planned_without_them(monkeypatch):
    several = {"batch": 2, "training": Training(microbatch=1)}
    kept = planned(1 << 40, monkeypatch, **several)
    assert planned(0, monkeypatch, **several) == kept
    # Else this would say nothing.
    assert planned(0, monkeypatch) != planned(1 << 40, monkeypatch)


def test_what_is_recomputed_is_found_in_all_passes(monkeypatch):
    behind = []

    class Watched(memory_planning.Sparing):
        def __init__(self, sizes, tasks, end):
            behind.append({task.what.serves for task in tasks[end:]})
            super().__init__(sizes, tasks, end)

    monkeypatch.setattr(memory_planning, "Sparing", Watched)
    least = int(0.99 * planned(0, monkeypatch))
    # It may be too little: what is recomputed has been looked for then.
    with suppress(TooLargeError):
        planned(0, monkeypatch, max_memory=least)
    assert behind
    assert not any(Pass.WEIGHT in served for served in behind)


def gradients(least, monkeypatch, max_memory=None):
    """Gradients after an update, whose values are recomputed where memory is short, and bytes of the model."""
    from_size(least, monkeypatch)
    functions = ("elu", "tanh", "linear", "tanh", "leaky_relu")
    net = winograd_chain((16,) * len(functions), functions=functions, padding=AROUND)
    rng = np.random.default_rng(0)
    with Model(net, (3, 9, 9), batch=2, threads=2, plan=winograd_plan(net), loss="square", seed=1,
               training=True, hardware=Hardware(max_memory=max_memory)) as model:  # fmt: skip
        x = rng.standard_normal((2, 1, *model.input_shape)).astype(np.float32)
        target = rng.standard_normal((2, 16, 3, 9, 9)).astype(np.float32)
        model.step(x, target, learning_rate=0.01)
        found = model.loss_and_gradients(x, target)[1]
        return {name: np.array(array).tobytes() for name, array in found.items()}, model.memory


def test_gradients_alone_in_little_memory(monkeypatch):
    """They are made in the order of updates, by which memory is shared, whatever is recomputed."""
    expected, _ = gradients(1 << 40, monkeypatch)
    found, used = gradients(0, monkeypatch)
    tried = 1
    with suppress(TooLargeError):
        while True:
            assert found == expected
            found, used = gradients(0, monkeypatch, used - 1)
            tried += 1
    assert tried > 2
