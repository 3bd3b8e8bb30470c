"""Tasks of MALIS that come before its loss: edges in order of their values, and what each of them weighs."""

from __future__ import annotations

from typing import NamedTuple

from znnpy_kernels.layers.malis import DIGITS, malis_order, malis_shares

from znnpy.engine.layers.loss_words import Leaf, Parts
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.regions import SMALL, Buffer, Name, Region, Use
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step
from znnpy.plan.cost import MEMORY_RATE

ORDERS = Use("orders of edges", "images of losses")
SORTING = Use("edges as they are sorted", "images of losses")
SHARES = Use("shares of pairs", "images of losses")
COUNTS = Use("counts of edges", SMALL)
PASSES = 60  # over an image's memory, about: what sorting and joining cost


class Weighed(NamedTuple):
    """Where a sample's loss reads the places of targets and weights, and what it then reads."""

    places: int
    regions: tuple[Region, Region]


def emit_shares(step: Step, build: Build, parts: Parts) -> list[Weighed]:
    """By sample: weights that are shares of pairs."""
    output, name = parts.output, parts.node.name
    edges = output.images * output.shape[0] * output.shape[1] * output.shape[2]
    shares = build.shared(Name(SHARES, name), edges * output.batch)
    return [_emit_sample(step, build, parts, shares, edges, b) for b in range(output.batch)]


def _emit_sample(
    step: Step, build: Build, parts: Parts, shares: Buffer, edges: int, batch: int
) -> Weighed:
    name, staged = parts.node.name, build.staged
    order = build.shared(Name(ORDERS, name, (batch,)), edges)
    sorting = build.shared(Name(SORTING, name, (batch,)), 3 * edges + 2 * DIGITS + 4)
    counts = build.scratch(Name(COUNTS, name, (batch,)), 6)  # one count, and two places
    words = parts.words(Leaf(0, batch, 0, parts.output.extent))
    cost = PASSES * 4 * edges / MEMORY_RATE
    what = Identity(name, Pass.LOSS, Part.LOSS)
    common = {"order": order.address, "count": counts.address, "scratch": sorting.address}
    common["offsets"] = staged.tables[name]
    given = {**words, **common, "positive": parts.objective.numbers["positive"]}
    given |= {"shares": shares.address + 4 * edges * batch, "base": shares.address}
    given["given"] = counts.address + 8
    read = parts.output.regions(batch, 0, parts.output.extent)
    step.add(
        malis_order,
        {word: given[word] for word in malis_order.fields},
        what=what,
        cost=cost,
        reads=[*read, staged.given.region()],
        writes=[order.region(), sorting.region(), counts.region(0, 1)],
    )
    step.add(
        malis_shares,
        {word: given[word] for word in malis_shares.fields},
        what=what,
        cost=cost,
        reads=[order.region(), counts.region(0, 1), staged.given.region()],
        writes=[
            sorting.region(),
            *(regions := (counts.region(1, 2), shares.region(batch, batch + 1))),
        ],
    )
    return Weighed(counts.address + 8, regions)
