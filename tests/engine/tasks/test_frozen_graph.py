"""Graphs as data of no process: all of theirs comes back, and what is of one process alone is refused."""

import numpy as np
import pytest
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.scheduling.barrier import wait_for_all
from znnpy_kernels.scheduling.run import run_in_turn
from znnpy_kernels.simd.rows import add_flat, zero_flat

from znnpy.engine.tasks.frozen_graph import PROCESS, FrozenGraph
from znnpy.engine.tasks.task_identity import GATE
from znnpy.graph import GraphBuilder


def graph_of(*words):
    builder = GraphBuilder()
    first = builder.task(zero_flat.address, words, GATE, cost=1.5, phase=0)
    builder.precede(first, builder.task(wait_for_all.address, (), GATE, cost=0.5, group=1))
    return builder.build()


def test_addresses_of_kernels_are_numbers_meanwhile():
    graph = graph_of(PROCESS - 1, -PROCESS, add_flat.address, 0)
    words, addresses = graph.words.copy(), graph.addresses
    frozen = FrozenGraph.of(graph, [add_flat])
    held = {*frozen.arrays["words"].tolist(), *frozen.arrays["addresses"].tolist()}
    assert not held & {kernel.address for kernel in frozen.kernels}
    again = frozen.graph()
    np.testing.assert_array_equal(again.words, words)
    np.testing.assert_array_equal(again.addresses, addresses)
    assert again.words.ctypes.data % 64 == 0
    assert (again.tasks, again.policy) == (graph.tasks, graph.policy)


@pytest.mark.parametrize("bits", [39, 48])
def test_kernels_may_lie_where_other_processors_have_them(bits, monkeypatch):
    kernels = [zero_flat, wait_for_all, run_in_turn, add_flat]
    places = {kernel: (1 << bits) - (number + 1 << 12) for number, kernel in enumerate(kernels)}
    monkeypatch.setattr(Kernel, "address", property(places.__getitem__))
    graph = graph_of(1 << 30, add_flat.address)
    words = graph.words.copy()
    frozen = FrozenGraph.of(graph, [add_flat])
    assert not {*frozen.arrays["words"].tolist()} & {*places.values()}
    np.testing.assert_array_equal(frozen.graph().words, words)
    assert FrozenGraph.of(graph_of((1 << bits) - 1), [add_flat]) is None


@pytest.mark.parametrize("of", ["memory", "kernel"])
def test_a_graph_with_other_addresses_stays_as_it_is(of):
    room = np.zeros(1)
    graph = graph_of(room.ctypes.data if of == "memory" else add_flat.address)
    words = graph.words.copy()
    assert FrozenGraph.of(graph, []) is None
    np.testing.assert_array_equal(graph.words, words)
