"""Runs: leaves that become one task keep their order, their bits and all that they touch."""

from dataclasses import replace

import numpy as np
import pytest
import random_networks as rn
from declared_tasks import buffer, declared
from znnpy_kernels.scheduling.run import run_in_turn
from znnpy_kernels.simd.rows import add_flat, zero_flat

from znnpy import Model
from znnpy.engine.memory.arena import Sharing
from znnpy.engine.memory.regions import Filled
from znnpy.engine.tasks import runs
from znnpy.engine.tasks.buffer_sharing import gated
from znnpy.engine.tasks.dependencies import Accesses
from znnpy.engine.tasks.runs import in_runs
from znnpy.geometry import fit

A, B, GIVEN = buffer("a"), buffer("b"), buffer("x", Filled.OUTSIDE)


def leaves(count, seconds=1e-4):
    """Leaves of one part of a pass that read and write side by side."""
    made = [
        declared("layer", reads=[GIVEN.region(n, n + 2)], writes=[A.region(n, n + 1)])
        for n in range(count)
    ]
    return [replace(task, cost=seconds) for task in made]


def joined(tasks):
    """All that may be one task is one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "TASKS_ALONE", 0.01)
        return in_runs(tasks, 1)


def calls(task):
    return 1 + len(task.more)


@pytest.mark.parametrize("workers", [1, 2, 16, 64])
def test_each_worker_may_count_on_its_tasks(workers):
    tasks = leaves(1000)
    made = in_runs(tasks, workers)
    assert sum(map(calls, made)) == 1000
    pieces = runs.TASKS_EACH * workers if workers > 1 else runs.TASKS_ALONE
    assert len(made) == 1000 or len(made) >= pieces
    assert len(made) <= max(2 * pieces, 0.11 / runs.MOST_SECONDS)
    assert sum(task.cost for task in made) == pytest.approx(0.1)
    assert max(task.cost for task in made) <= max(runs.MOST_SECONDS, 1e-4)


@pytest.mark.parametrize(("workers", "tasks"), [(2, 20), (4, 32), (5, 160)])
def test_few_workers_have_no_shorter_tasks_than_they_need(workers, tasks):
    made = in_runs(leaves(1000, 1e-6), workers)
    assert tasks <= len(made) <= 1.3 * tasks


def test_few_or_long_leaves_stay_as_they_are():
    for tasks in (leaves(20), leaves(400, 1.9e-3)):
        assert in_runs(tasks, 2) == tasks


def test_what_follows_is_in_the_task_of_the_leaf_before():
    long = leaves(6, 1.9e-3)
    other = declared("other", reads=[A.region(0, 1)], writes=[B.region(0, 1)])
    tasks = [*long[:3], replace(other, cost=1.0, follows=True), *long[3:]]
    made = in_runs(tasks, 2)
    assert [calls(task) for task in made] == [1, 1, 2, 1, 1, 1]
    assert made[2].what == long[2].what
    assert B.region(0, 1) in made[2].writes


def test_a_run_touches_what_its_leaves_touch():
    (run,) = joined(leaves(8, 1e-6))
    assert run.reads == (GIVEN.region(0, 9),)
    assert run.writes == (A.region(0, 8),)


def test_what_leaves_write_for_each_other_nobody_else_must_have_written():
    first, second = (
        declared("layer", writes=[A.region(0, 2)]),
        declared("layer", reads=[A.region(0, 1)]),
    )
    (run,) = joined([first, second])
    assert run.reads == ()
    partly = replace(second, reads=(A.region(1, 3),))
    assert len(joined([first, partly])) == 2


@pytest.mark.parametrize(
    "change", [{"group": 1}, {"phase": 1}, {"urgent": True}, {"anew": (B,)}, {"stage": 1}]
)
def test_what_somebody_waits_for_is_a_task_of_its_own(change):
    tasks = leaves(3, 1e-6)
    tasks[1] = replace(tasks[1], **change)
    assert sum(calls(task) == 1 for task in joined(tasks)) >= 1
    assert tasks[1] in joined(tasks)


def test_other_parts_of_a_pass_are_other_tasks():
    tasks = leaves(2, 1e-6) + [
        replace(task, what=declared("other").what) for task in leaves(2, 1e-6)
    ]
    assert [calls(task) for task in joined(tasks)] == [2, 2]


def test_leaves_of_several_calls_keep_them_all():
    tasks = [
        replace(task, more=((zero_flat, [number]), (zero_flat, [number, 1])))
        for number, task in enumerate(leaves(3, 1e-6))
    ]
    (run,) = joined(tasks)
    own = [[(task.kernel, task.arguments), *task.more] for task in tasks]
    assert [(run.kernel, run.arguments), *run.more] == [call for calls in own for call in calls]


def test_calls_run_in_their_order():
    values = np.arange(4, dtype=np.float32)
    at = values.ctypes.data
    adds = [
        (
            add_flat,
            add_flat.arguments(
                first=at + 4 * n, second=at + 4 * n - 4, target=at + 4 * n, length=1
            ),
        )
        for n in (1, 2, 3)
    ]
    zeros = (zero_flat, zero_flat.arguments(target=at + 4, length=1))
    task = replace(
        declared("t"), kernel=adds[0][0], arguments=adds[0][1], more=(adds[1], zeros, adds[2])
    )
    address, block = task.call
    assert address == run_in_turn.address
    words = np.array(block, np.int64)
    run_in_turn.compile().ctypes(words.ctypes.data_as(run_in_turn.compile().ctypes.argtypes[0]), 0)
    assert values.tolist() == [0, 0, 3, 6]


@pytest.mark.parametrize("seed", range(6))
def test_bits_do_not_depend_on_how_leaves_are_joined(seed, monkeypatch):
    """Networks of all kinds, with all leaves of a part in one task, and as they are for many workers."""
    found = []
    for each in (0.001, 32):
        monkeypatch.setattr(runs, "TASKS_EACH", each)
        monkeypatch.setattr(runs, "MOST_SECONDS", 1.0)
        found.append(updated(seed))
    for name, values in found[0].items():
        assert np.array_equal(values, found[1][name]), name


def updated(seed):
    """Gradients, and parameters after three updates, of a drawn network."""
    network, output = rn.random_network(seed)
    geometry = fit(network, output)
    with Model(network, output, 2, threads=3, loss="square") as model:
        model.set_parameters(rn.random_parameters(network, seed))
        for update in range(3):
            x = rn.random_inputs(network, geometry, update, 2)
            target = rn.random_targets(network, geometry, update, 2)
            model.step(x, target, learning_rate=0.01)
        _, gradients = model.loss_and_gradients(x, target)
        return dict(gradients) | {f"{name} updated": it for name, it in model.parameters.items()}


def test_memory_is_handed_over_between_runs(monkeypatch):
    """What reads a buffer last and what writes first to another in its place are no run that others write beside."""
    one, other = ([it.region(section=part) for part in range(2)] for it in (A, B))
    tasks = [
        declared("fill", writes=one),
        declared("layer", reads=one),
        declared("layer", writes=other[:1]),
        declared("layer", writes=other[1:]),
    ]
    sharing = Sharing({A.name: 0, B.name: 0}, 64, {A.name: [B.name], B.name: [A.name]}, [])
    monkeypatch.setattr(runs, "MOST_SECONDS", 2.5e-6)  # two leaves
    made = joined(gated(tasks, sharing))
    ends, found = Accesses.of([made]).predecessors()
    reach = []
    for moment in range(len(made)):
        before = found[ends[moment] : ends[moment + 1]].tolist()
        reach.append(set(before).union(*(reach[other] for other in before)))
    (reader,) = (n for n, task in enumerate(made) if {it.buffer for it in task.reads} == {A})
    writers = [n for n, task in enumerate(made) if B in {it.buffer for it in task.writes}]
    assert writers
    assert all(n == reader or reader in reach[n] for n in writers)


def test_a_leaf_may_read_all_that_the_one_before_wrote():
    first = declared("layer", writes=[A.region(0, 2)])
    second = declared("layer", reads=[A.region(0, 2)], writes=[B.region(0, 1)])
    assert [calls(task) for task in joined([first, second])] == [2]
