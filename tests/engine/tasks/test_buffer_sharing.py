"""Buffers that share memory: never needed at once, ordered by gates, and never taken for empty."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import random_networks as rn
from declared_tasks import buffer, declared

from znnpy import Model
from znnpy.engine.memory.arena import Arena
from znnpy.engine.tasks.buffer_sharing import gated, lifetimes, share
from znnpy.engine.tasks.dependencies import Accesses
from znnpy.geometry import fit


def random_step(rng, buffers, tasks=60):
    """Tasks that touch parts of buffers, each of which is used for a while."""
    starts = rng.integers(0, tasks, buffers)
    ends = starts + rng.integers(1, tasks // 3, buffers)
    step = []
    for moment in range(tasks):
        alive = [b for b in range(buffers) if starts[b] <= moment < ends[b]]
        part = int(rng.integers(3))
        touched = [b for b in alive if rng.integers(2)]
        regions = tuple(buffer(f"{b}").region(0, 4, section=part) for b in touched)
        step.append(replace(declared(f"task {moment}"), writes=regions))
    return step


def random_sizes(rng, buffers):
    return {buffer(f"{b}").name: 64 * int(rng.integers(1, 50)) for b in range(buffers)}


def ranges(sharing, sizes):
    return {name: (at, at + sizes[name]) for name, at in sharing.offsets.items()}


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(5))
def test_buffers_that_meet_lie_apart(seed):
    rng = np.random.default_rng(seed)
    step, sizes = random_step(rng, 25), random_sizes(rng, 25)
    sharing = share(sizes, step)
    places, lives = ranges(sharing, sizes), lifetimes(step, sizes)
    for a, b in combinations(sizes, 2):
        separate = places[a][1] <= places[b][0] or places[b][1] <= places[a][0]
        always = a not in lives or b not in lives
        assert separate or not (always or lives[a].meets(lives[b]))
        assert separate == (b not in sharing.neighbours[a])
    needed = sum(sizes[name] for name in sharing.busiest)
    assert needed <= sharing.bytes <= 1.5 * needed < sum(sizes.values())


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(5))
def test_slack_is_work_between_two_uses_of_the_same_memory(seed):
    rng = np.random.default_rng(seed)
    step, sizes = random_step(rng, 25), random_sizes(rng, 25)
    step = [replace(task, cost=float(rng.random())) for task in step]
    slack = 3.0
    sharing, lives = share(sizes, step, slack), lifetimes(step, sizes)
    for name, others in sharing.neighbours.items():
        for other in others:
            first, then = sorted(lives[it].spans[0] for it in (name, other))
            between = step[first.last + 1 : then.first + 1]
            assert sum(task.cost for task in between) > slack
    needed = sum(sizes[name] for name in sharing.busiest)
    assert needed == sum(sizes[name] for name in share(sizes, step).busiest)
    assert share(sizes, step).bytes < sharing.bytes < sum(sizes.values())


def test_with_slack_for_all_tasks_nothing_overlaps_and_no_gate_is_needed():
    rng = np.random.default_rng(0)
    step, sizes = random_step(rng, 25), random_sizes(rng, 25)
    sharing = share(sizes, step, 1e9)
    assert sharing.bytes == sum(sizes.values())
    assert gated(step, sharing) == step


def test_what_no_task_touches_is_kept_apart():
    sharing = share({buffer("a").name: 64, buffer("b").name: 64}, [])
    assert sorted(sharing.offsets.values()) == [0, 64]


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(5))
def test_tasks_on_the_same_bytes_are_ordered_within_and_between_steps(seed):
    rng = np.random.default_rng(seed)
    step, sizes = random_step(rng, 12), random_sizes(rng, 12)
    sharing = share(sizes, step)
    places = ranges(sharing, sizes)
    tasks, touched, reach = 2 * gated(step, sharing), [], []
    ends, found = Accesses.of([tasks]).predecessors()
    for moment, task in enumerate(tasks):
        before = found[ends[moment] : ends[moment + 1]].tolist()
        reach.append(set(before).union(*(reach[other] for other in before)))
        names = {region.buffer.name for region in task.writes}
        for name in names:
            for other, earlier in touched:
                (a, b), (c, d) = places[name], places[other]
                if other != name and a < d and c < b:
                    assert earlier in reach[moment]
        touched += [(name, moment) for name in names]


@pytest.fixture
def dirty_memory(monkeypatch):
    """Shared memory that holds NaN before its first use."""
    clean = Arena.of.__func__

    def dirty(cls, size, sharing=None, **given):
        arena = clean(cls, size, sharing, **given)
        if sharing:
            arena.view(arena._base, (sharing.bytes,), "u1")[...] = 0xFF
        return arena

    monkeypatch.setattr(Arena, "of", classmethod(dirty))


def losses(seed, conv, threads):
    net, output = rn.random_network(seed)
    geometry = fit(net, output)
    with Model(net, output, batch=2, threads=threads, conv=conv, loss="square") as model:
        model.set_parameters(rn.random_parameters(net, 4))
        found = []
        for update in range(3):
            x = rn.random_inputs(net, geometry, update, 2)
            target = rn.random_targets(net, geometry, update, 2)
            found.append(model.step(x, target, learning_rate=0.01))
            model.forward(x)
        return [np.array(found), *model.parameters.values()]


@pytest.mark.quick(2)
@pytest.mark.parametrize("conv", ["direct", "fft", "spectral"])
@pytest.mark.parametrize("seed", [0, 1, 3, 7])
def test_nobody_relies_on_what_is_in_shared_memory(seed, conv, dirty_memory, monkeypatch):
    found = losses(seed, conv, 2)
    monkeypatch.undo()
    for values, wanted in zip(found, losses(seed, conv, 0), strict=True):
        assert np.isfinite(wanted).all()
        np.testing.assert_array_equal(values, wanted)
