"""The control block: lines apart, deques large enough, groups counted by their last members."""

import numpy as np
from znnpy_kernels.scheduling import control_block as at

from znnpy.graph import GraphBuilder, Named, TaskGraph
from znnpy.scheduler.control_block import ControlBlock, counted


def chain_with_a_tail() -> TaskGraph:
    """0 -> 1 -> 2 -> 3; 0 to 2 are in group 0, 3 in group 1."""
    builder = GraphBuilder()
    for task in range(4):
        builder.task(
            0,
            [],
            Named(str(task)),
            cost=1.0,
            phase=0 if task == 0 else -1,
            group=int(task == 3),
        )
    for task in range(3):
        builder.precede(task, task + 1)
    return builder.build()


def test_only_the_last_members_of_a_group_are_counted() -> None:
    assert counted(chain_with_a_tail()).tolist() == [False, False, True, True]


def test_what_workers_write_lies_on_lines_of_its_own() -> None:
    block = ControlBlock(chain_with_a_tail(), 3, seed=0, record=5, spin_ns=0)
    assert block.address % at.LINE == 0
    assert block.queues % at.LINE == 0
    written = [at.BOTTOM, at.TOP, at.STATE, at.EXECUTED]
    assert len({offset // at.LINE for offset in written}) == len(written)
    assert at.QUEUE_BYTES % at.LINE == at.GROUP_BYTES % at.LINE == 0


def test_every_deque_holds_all_tasks_of_its_band() -> None:
    builder = GraphBuilder()
    for task in range(21):
        cost = 1.0 if task < 17 else 100.0
        builder.task(0, [], Named(str(task)), cost=cost, phase=0)
    graph = builder.build()
    block = ControlBlock(graph, 2, seed=0, record=0, spin_ns=0)
    tasks = np.bincount(graph.band, minlength=at.BANDS)
    for index in range(3):
        masks = block.queue(index)[at.MASKS // 8 :][: at.BANDS]
        assert (masks + 1 >= tasks).all()
        assert (((masks + 1) & masks) == 0).all()


def test_seeds_differ_by_worker_and_by_seed() -> None:
    seeds = {
        int(
            ControlBlock(chain_with_a_tail(), 2, seed=seed, record=0, spin_ns=0).queue(worker)[
                at.RANDOM // 8
            ]
        )
        for seed in (0, 1)
        for worker in (0, 1)
    }
    assert len(seeds) == 4
    assert 0 not in seeds
