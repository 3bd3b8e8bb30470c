"""Simulated ranks against times known by hand, and what every strategy must keep."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from simulated_recordings import recorded

from znnpy.distributed.strategies import STRATEGIES, WHOLE, adjusted
from znnpy.graph import GraphBuilder, GraphError, Named, TaskGraph
from znnpy.simulate import (
    IDEAL,
    Exchange,
    Links,
    Machine,
    Message,
    Replay,
    exchanged,
    simulate,
    simulate_ranks,
    simulate_scaling,
)

FORWARD, BACKWARD, UPDATE = 1.0, 2.0, 0.25
MIB = 1 << 20
SECOND = Links(latency=0.0, bandwidth=MIB, adding=0.0)
"""A mebibyte takes a second."""


def layered(layers: int) -> TaskGraph:
    """Two copies of a step: forward through all layers, back, an update of each layer."""
    builder = GraphBuilder()
    updates: list[list[int]] = []
    for step in range(2):
        costs = [FORWARD] * layers + [BACKWARD] * layers + [UPDATE] * layers
        tasks = [
            builder.task(0, [], Named(f"{step}.{n}"), cost=cost, phase=-1 if n else step, step=step)
            for n, cost in enumerate(costs)
        ]
        for before, after in pairwise(tasks[: 2 * layers]):
            builder.precede(before, after)
        updates.append(tasks[2 * layers :])
        for layer in range(layers):
            builder.precede(tasks[2 * layers - 1 - layer], updates[-1][layer])
    size = 3 * layers
    for layer in range(layers):
        builder.precede(updates[0][layer], size + layer)
        builder.precede(updates[1][layer], layer, carried=True)
    return builder.build()


def sums(layers: int, size: int = MIB, pieces: int = 16) -> list[list[Exchange]]:
    """Each layer's gradient, those of the last layers first."""
    found, ends = [], tuple(size // 4 // pieces * (n + 1) for n in range(pieces))
    for step in range(2):
        for layer in reversed(range(layers)):
            made, moves = (
                step * 3 * layers + n for n in (2 * layers - 1 - layer, 2 * layers + layer)
            )
            name = str(layer)
            found.append(
                [Exchange(name, ends, after=(made,), before=(moves,), moves=(moves,), step=step)]
            )
    return found


def seconds(
    layers, ranks, name, links=SECOND, colors=2, chunk=MIB, workers=2, steps=6, machine=IDEAL
):
    """Seconds of a step on ranks, in the steady state; two workers, so that nobody has to wait for one."""
    strategy = adjusted(STRATEGIES[name], colors, chunk)
    it = exchanged(Replay.of(layered(layers)), sums(layers), ranks, strategy, links)
    return simulate_ranks(it.replays, it.messages, workers, machine, steps, ports=it.ports).steady


COMPUTED = FORWARD + BACKWARD + UPDATE


def nobody(graph, strategy, workers):
    """No recorded task comes first."""
    return ()


@pytest.mark.parametrize(
    ("ranks", "strategy", "chunk", "exposed"),
    [
        (2, "tree", MIB, 2.0),  # up and down
        (4, "tree", MIB, 4.0),  # two levels up, two down
        (8, "tree", MIB, 6.0),
        (3, "tree", MIB, 3.0),  # who hears first of two has sent first, next time
        (2, "multicolor", MIB // 2, 1.0),  # halves, both at once
        (4, "multicolor", MIB // 2, 2.0),
        (2, "multicolor", MIB, 2.0),  # a message has one color
        (2, "allreduce", MIB, 1.0),  # two rounds of a half
        (4, "blocking", MIB, 1.5),  # six rounds of a quarter
    ],
)
def test_one_layer_exposes_all_that_is_sent(ranks, strategy, chunk, exposed):
    assert seconds(1, ranks, strategy, chunk=chunk) == pytest.approx(COMPUTED + exposed)


def test_a_message_takes_its_latency_too_and_what_comes_is_added():
    links = replace(SECOND, latency=0.25, adding=0.125 / MIB)
    assert seconds(1, 2, "tree", links) == pytest.approx(COMPUTED + 2 * 1.25 + 0.125)
    assert seconds(1, 4, "allreduce", links) == pytest.approx(
        COMPUTED + 6 * (0.25 + 0.25) + 3 * 0.125 / 4
    )


def test_a_port_carries_one_message_at_a_time_each_way():
    graph = layered(1)
    pair = [Message(((rank, 1),), ((1 - rank, 2),), rank, 1 - rank, 1.0, 0.0) for rank in (0, 1)]
    graph.joins[2] += 1
    graph.initial[2] += 1

    def run(messages):
        return simulate_ranks([Replay.of(graph)] * 2, messages, 1, IDEAL, 1, ports=2)

    assert run(pair).seconds == pytest.approx(COMPUTED + 1)
    graph.joins[2] += 1
    graph.initial[2] += 1
    both = run(pair * 2)
    assert both.seconds == pytest.approx(COMPUTED + 2)
    np.testing.assert_allclose(both.carried, 2.0)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 16])
def test_messages_that_take_no_time_change_nothing(strategy, ranks):
    free = Links(latency=0.0, bandwidth=np.inf, adding=0.0)
    assert seconds(3, ranks, strategy, free) == pytest.approx(seconds(3, 1, strategy))


def test_layers_at_once_overlap_with_what_is_computed_and_blocking_does_not():
    links = replace(SECOND, bandwidth=4 * MIB)
    alone = seconds(4, 1, "tree")
    found = {name: seconds(4, 2, name, links) - alone for name in STRATEGIES}
    assert found["blocking"] == pytest.approx(1.0)
    assert found["tree"] <= 0.5 * found["blocking"] + 1e-9
    assert found["multicolor"] <= found["tree"] + 1e-9


def test_chunks_follow_each_other_through_the_tree():
    whole = seconds(1, 16, "multicolor", colors=1, chunk=WHOLE)
    cut = seconds(1, 16, "multicolor", colors=1, chunk=MIB // 16)
    assert whole == pytest.approx(COMPUTED + 8.0)
    assert COMPUTED + 4.0 <= cut <= whole - 1.5


@pytest.mark.parametrize(("ranks", "rounds"), [(2, 1), (4, 2), (8, 3)])
def test_small_layers_are_added_up_by_every_rank(ranks, rounds):
    links = replace(SECOND, latency=1.0, bandwidth=np.inf, adding=1 / 1024)
    levels = (ranks - 1).bit_length()
    it = exchanged(Replay.of(layered(1)), sums(1, 1024), ranks, STRATEGIES["multicolor"], links)
    found = simulate_ranks(it.replays, it.messages, 2, IDEAL, 6, ports=it.ports).steady
    assert found == pytest.approx(COMPUTED + rounds + levels)


def test_messages_take_colors_in_turn():
    strategy = adjusted(STRATEGIES["multicolor"], 2, MIB)
    it = exchanged(Replay.of(layered(4)), sums(4), 2, strategy, SECOND)
    assert [m.source for m in it.messages] == [1, 0, 0, 1] * (len(it.messages) // 4)


def test_only_the_first_rank_of_a_tree_moves_weights():
    it = exchanged(Replay.of(layered(2)), sums(2), 2, STRATEGIES["tree"], SECOND)
    first, second = (replay.work(1) for replay in it.replays)
    assert first - second == pytest.approx(2 * UPDATE)


def test_the_same_arguments_give_the_same_bits():
    runs = [seconds(3, 8, "multicolor", Links(), workers=3, machine=Machine()) for _ in range(2)]
    assert runs[0] == runs[1]


def test_one_rank_is_a_run_of_one_process():
    replay = Replay.of(layered(3))
    it = exchanged(replay, sums(3), 1, STRATEGIES["tree"], SECOND)
    ranks = simulate_ranks(it.replays, it.messages, 2, Machine(), 5, ports=it.ports)
    assert ranks.seconds == simulate(replay, 2, Machine(), 5).seconds


def test_a_message_that_nobody_posts_is_found():
    replay = Replay.of(layered(1))
    replay.graph.initial[2] += 1
    with pytest.raises(GraphError, match="of 2 steps on each of 2 ranks"):
        simulate_ranks([replay, replay], [], 1, IDEAL, 2)


@pytest.mark.slow
def test_the_table_of_a_profile():
    graph = layered(3)
    costs = graph.cost * 1e-3
    measured = {1: recorded(replace(graph, cost=costs), 1, IDEAL, 8)}
    links = Links(latency=1e-5, bandwidth=1e9)
    told: list[tuple[int, int]] = []
    found = simulate_scaling(
        measured,
        lambda graph: sums(3),
        nobody,
        (2, 64),
        links,
        steps=6,
        report=lambda *far: told.append(far),
    )
    total = 1 + 66 + sum(row["ranks"] for row in found["rows"])
    assert told[0] == (1, total)
    assert told[-1] == (total, total)
    assert len(told) == 3 + len(found["rows"])
    assert found["bytes"] == 3 * MIB
    assert found["alone"] == pytest.approx(3e-3 * COMPUTED, rel=1e-3)
    assert {row["ranks"] for row in found["rows"]} == {2, 64}
    assert {row["strategy"] for row in found["rows"]} == set(STRATEGIES)
    for row in found["rows"]:
        assert row["seconds"] == pytest.approx(found["alone"] + row["exposed"] + row["unequal"])
        assert row["wire"] > 0
    own = simulate_scaling(
        measured, lambda graph: sums(3), nobody, (4,), links, colors=3, chunk=MIB // 4, steps=6
    )
    assert {row["colors"] for row in own["rows"]} == {1, 3}
    assert {row["strategy"] for row in own["rows"]} == set(STRATEGIES)
    asked = set()

    def moves(graph, strategy, workers):
        asked.add((strategy.name, workers))
        return range(6, 9) if strategy.weights_down else ()

    found = simulate_scaling(measured, lambda graph: sums(3), moves, (2,), links, steps=6)
    assert asked == {(name, 1) for name in STRATEGIES}
    assert {row["strategy"] for row in found["rows"]} == set(STRATEGIES)
    with pytest.raises(ValueError, match="nothing to add up"):
        simulate_scaling(measured, lambda graph: [], nobody)
