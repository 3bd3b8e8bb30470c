"""Bytes that tasks touch: shares of buffers counted by hand, and networks whose data are read once by each pass."""

from collections import defaultdict
from dataclasses import replace

import pytest
from declared_tasks import ANY, declared
from znnpy_kernels.simd.lanes import LANES

from znnpy import Execution, Model
from znnpy.engine.memory.regions import Buffer, Name
from znnpy.engine.tasks.memory_traffic import touched
from znnpy.engine.tasks.task_identity import Kind, Part, Pass, identities

A, B = Buffer(Name(ANY, "a"), floats=16 * 60), Buffer(Name(ANY, "b"), floats=16 * 60)
LINES = 64 * 60  # bytes of each


def stripes_of(found, task):
    """The stripes of a task, as (number, whether it is stored to)."""
    own = slice(*found.starts[task : task + 2])
    return list(zip(found.stripes[own].tolist(), found.written[own].tolist(), strict=True))


def bytes_of(*tasks):
    return (touched([tasks]).bytes() / 64).tolist()


def test_ranges_count_by_their_units():
    tasks = [
        declared("x", reads=[A.region(0, 2)], writes=[A.region(2, 4)]),
        declared("y", [A.region()]),
    ]
    # Halves of a buffer of four units; what is stored is read first.
    assert bytes_of(*tasks) == [30 + 2 * 30, 60]


def test_sections_share_a_buffer_and_strands_a_range():
    tasks = [
        declared("x", writes=[A.region(0, 3, section=0, strand=strand)]) for strand in (7, 2, 5)
    ]
    tasks.append(declared("y", reads=[A.region(0, 3, section=1)]))
    assert bytes_of(*tasks) == [20, 20, 20, 30]
    found = touched([tasks])
    assert {it for task in range(3) for it, _ in stripes_of(found, task)} == {0, 1, 2}


def test_tasks_that_divide_what_they_wait_for_share_it_by_their_costs():
    tasks = [
        replace(
            declared("x", [A.region(), B.region(0, 2)], [B.region(0, 2)]), divides=True, cost=cost
        )
        for cost in (1.0, 2.0, 3.0)
    ]
    # What they also write is theirs: two of two units of b, read and stored to.
    assert bytes_of(*tasks) == [10 + 180, 20 + 180, 30 + 180]
    first, second, third = (
        {it for it, _ in stripes_of(touched([tasks]), task)} for task in range(3)
    )
    assert len(first | second | third) == len(first) + len(second) + len(third) - 2
    # Others between them are another group, which reads all of it again.
    apart = [tasks[0], declared("y", [A.region()]), tasks[1]]
    assert bytes_of(*apart) == [60 + 180, 60, 60 + 180]


def test_gates_touch_nothing_and_are_no_entries():
    gate = declared("x", reads=[A.region()])
    gate = replace(gate, what=gate.what._replace(serves=Pass.ORDER, part=Part.GATE))
    assert len(touched([[gate, declared("y", [A.region()])]]).starts) == 2


def kinds_of(model):
    """Bytes by kind and pass of one update, without what tasks that only wait would add."""
    graph, moved = model.task_graph, model.touched().bytes()
    found = defaultdict(float)
    works = [task for task in zip(identities(graph), graph.step, strict=True) if not task[0].waits]
    for (what, step), bytes_ in zip(works, moved.tolist(), strict=True):
        if step == 0:
            found[what.kind, what.serves] += bytes_
    return found


@pytest.mark.parametrize("workers", [1, 64])
def test_a_direct_pass_reads_what_it_needs_and_stores_what_it_makes(workers):
    channels = 2 * LANES
    net = {
        "input": channels,
        "layers": [{"conv": {"channels": channels, "size": 1, "bias": False}}],
    }
    with Model(
        net,
        (24, 8, 8),
        training=False,
        conv="direct",
        threads=1,
        execution=Execution(cut_for=workers),
    ) as model:
        moved = kinds_of(model)[Kind.DIRECT, Pass.FORWARD]
        tasks = sum(what.kind is Kind.DIRECT for what in identities(model.task_graph))
    image, filters = 4 * channels * 24 * 8 * 8, 4 * channels * channels
    # Rows are padded by up to a line; each task reads the filters.
    assert moved == pytest.approx(3 * image + tasks * filters, rel=0.15)


def test_work_that_is_cut_finer_touches_as_much():
    """Products of some frequencies wait for the spectra of all, and touch their own."""
    net = {
        "input": 1,
        "layers": [{"conv": {"channels": 2 * LANES, "size": 3, "function": "relu"}}] * 3,
    }
    moved = []
    for workers in (1, 64):
        execution = Execution(cut_for=workers)
        with Model(net, (16, 16, 16), conv="spectral", threads=1, execution=execution) as model:
            moved.append(kinds_of(model))
    few, many = (
        sum(it for (kind, _), it in found.items() if kind in (Kind.PRODUCT, Kind.TRANSFORM))
        for found in moved
    )
    assert many == pytest.approx(few, rel=0.25)
