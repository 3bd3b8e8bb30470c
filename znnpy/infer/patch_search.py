"""Searches for the best patch: the output shape of one network run that costs least and fits into memory.

A bigger patch repeats less of the halo and has fewer runs of the network to start; beyond some size
it only takes more memory. The search compares estimates, so that it gives the same patch whatever
the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from znnpy.data.process_memory import readable
from znnpy.data.volume import Triple
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory_planning import planned_bytes
from znnpy.engine.step_tasks import Settings
from znnpy.errors import PlanError
from znnpy.geometry import Geometry, fit, voxels
from znnpy.geometry.shape_inference import smallest
from znnpy.infer.blocks import Region, lattice_unit, triple
from znnpy.infer.forward_costs import forward_plan, forward_seconds
from znnpy.infer.grid import Grid
from znnpy.network.folding import folded
from znnpy.network.types import Network
from znnpy.plan import Choice, Plan

# Smaller finds patches a little cheaper and plans more of them: each candidate that is asked for
# its bytes is declared.
STEP = 1.15  # ratio of neighbouring sizes that are tried
MOST_SIDE = 256  # voxels; beyond it, and 4 receptive fields (fields of view), a patch gains nothing
ENOUGH = 1.03  # a patch this close to the best is taken when it is smaller
# Much less memory is worth a little time: of a short prediction, little beside the second that starting takes.
SAVED = 4 << 30  # bytes that are worth a second
LITTLE = 256 << 20  # bytes, fewer of which are worth nothing
NEVER = 0.25  # of the time that is the most to give, for any number of bytes
# What a run takes beside the network's work, however small: cutting and staging the input, starting the
# workers and waiting for them, placing what comes out. 0.12 to 0.2 ms with one worker, 0.3 to 0.5 with
# two (`scripts/bench_patch.py`). All cores wait meanwhile.
RUN_SECONDS = 3e-4
# Along each axis a patch has at least this fraction of the receptive field, where region and memory allow it:
# what is smaller computes more halo than voxels, whatever the estimates of layers say.
LEAST_VIEW = 0.5
Needs = Callable[["Candidate"], int]
"""Returns the bytes that predicting with a candidate takes in all."""


@dataclass(frozen=True)
class Candidate:
    """One patch with its plan for a forward pass; `record` repeats a plan instead of choosing it."""

    network: Network
    patch: Triple
    conv: Choice
    record: Mapping[str, Any] | None = None
    _bytes: dict[int, int] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def geometry(self) -> Geometry:
        """The shapes of all feature maps for one patch."""
        return fit(self.network, self.patch)

    @cached_property
    def plan(self) -> Plan:
        """The algorithm of each layer."""
        if self.record is not None:
            return Plan.from_record(self.record, self.network)
        return forward_plan(self.network, self.geometry, self.conv)

    @cached_property
    def seconds(self) -> float:
        """The estimated seconds of one run on one core."""
        return forward_seconds(folded(self.network), self.geometry, self.plan)

    def cost(self, region: Region) -> float:
        """Return the estimated seconds of predicting a region, added up over all cores of the machine."""
        return Grid.of(self.geometry).count(region) * (
            self.seconds + RUN_SECONDS * counted_workers()
        )

    @cached_property
    def least_bytes(self) -> int:
        """The least memory that feature maps of one edge take, known without building the engine."""
        nodes = self.geometry.nodes
        sizes = {n.name: 4 * n.channels * voxels(nodes[n.name].shape) for n in self.network.nodes}
        return max(sizes[edge.source] + sizes[edge.target] for edge in self.network.edges)

    def bytes(self, workers: int) -> int:
        """Return the least memory of the engine for one run, found by planning it without allocating.

        More of it lets more workers be busy at once (docs/design/order.md); patches are not chosen by that.
        """
        if workers not in self._bytes:
            network = folded(self.network)
            layout = Layout(network, self.geometry, self.plan, 1, False, workers=workers)
            settings = Settings({}, Optimizer(), None, workers, max_memory=0)
            self._bytes[workers] = planned_bytes(layout, settings)
        return self._bytes[workers]


def best_patch(
    network: Network,
    region: Region,
    conv: Choice,
    needs: Needs,
    limit: int,
    record: Mapping[str, Any] | None = None,
) -> Candidate:
    """Return the candidate with the least cost of predicting `region`, of those that need at most `limit` bytes.

    Of candidates hardly dearer the smallest. Raises PlanError when not even the smallest fits, naming what it needs.
    """
    found = candidates(network, region, conv, record)
    # A quick bound first: planning a candidate that is far too large takes longest.
    possible = [c for c in found if c.least_bytes <= limit]
    # Patches smaller than half a field of view only if no larger one fits.
    for group in _by_view(possible, region):
        costs = {id(c): c.cost(region) for c in group}
        cheapest_first = sorted(group, key=lambda c: costs[id(c)])
        # Cheapest first, so that few have to be planned.
        best = next((c for c in cheapest_first if needs(c) <= limit), None)
        if best is not None:
            # Candidates are sorted by size: the first that fits is the smallest of the close ones.
            close = (c for c in group if costs[id(c)] <= ENOUGH * costs[id(best)])
            usual = next(c for c in close if needs(c) <= limit)
            return _for_less(group, costs, usual, needs)
    raise PlanError(_too_little(found, needs, limit))


def _for_less(
    group: list[Candidate], costs: Mapping[int, float], usual: Candidate, needs: Needs
) -> Candidate:
    """Return the largest candidate that takes so much less memory than another that it is worth the time, or that."""
    most, least = needs(usual), costs[id(usual)]
    for candidate in reversed(group[: group.index(usual)]):
        more = costs[id(candidate)] - least
        # The quick bound first, as above.
        if more <= min(NEVER * least, most / SAVED):
            saved = most - needs(candidate)
            if saved >= max(LITTLE, more * SAVED):
                return candidate
    return usual


def _by_view(found: list[Candidate], region: Region) -> tuple[list[Candidate], list[Candidate]]:
    """Return candidates of the order of the receptive field, and the smaller ones."""
    covering = [(c, _covers(c, region)) for c in found]
    return [c for c, covers in covering if covers], [c for c, covers in covering if not covers]


def _covers(candidate: Candidate, region: Region) -> bool:
    views = zip(*candidate.geometry.fields_of_view.values(), strict=True)
    return all(
        size >= min(extent, LEAST_VIEW * max(view))
        for size, extent, view in zip(candidate.patch, region.shape, views, strict=True)
    )


def candidates(
    network: Network, region: Region, conv: Choice, record: Mapping[str, Any] | None = None
) -> list[Candidate]:
    """Return patches, smallest first; with `auto` also by direct convolution alone, which takes least memory."""
    # Direct first: of equal cost and size the one with less memory is taken.
    choices: list[Choice] = ["direct", "auto"] if conv == "auto" and record is None else [conv]
    return [
        Candidate(network, patch, choice, record)
        for patch in sizes(region, network)
        for choice in choices
    ]


def sizes(region: Region, network: Network) -> list[Triple]:
    """Return patches worth looking at, smallest first: nearly cubes that divide the region evenly."""
    views = fit(network, smallest(network)).fields_of_view.values()
    most = max(MOST_SIDE, 4 * max(max(view) for view in views))
    side, found = float(min(most, max(region.shape))), set()
    while side >= 1:
        # Equal parts of the region rather than `side` itself: no patch hangs over the end by much.
        parts = [-(-n // int(side)) for n in region.shape]
        found.add(triple(-(-n // k) for n, k in zip(region.shape, parts, strict=True)))
        side /= STEP
    possible = {covering(network, patch) for patch in found}
    return sorted(possible, key=lambda patch: (patch[0] * patch[1] * patch[2], patch))


def covering(network: Network, shape: Triple) -> Triple:
    """Return the smallest patch of which whole periods of pooling hold so many voxels; `shape` without pooling."""
    unit = lattice_unit(fit(network, smallest(network)))
    whole = triple(-(-n // step) * step for n, step in zip(shape, unit, strict=True))
    return smallest(network, whole)


def counted_workers() -> int:
    """Return the number of workers whose memory is counted: the machine's cores, so that all choose the same patch."""
    # Not the cores that this process may use: a patch must not depend on an affinity mask.
    return os.cpu_count() or 1


def _too_little(found: list[Candidate], needs: Needs, limit: int) -> str:
    # Candidates are sorted by size: the one that needs least is among the first.
    least = min(found[:4], key=needs)
    return (
        f"predicting takes at least {readable(needs(least))} of memory, for patches of {least.patch} "
        f"voxels (z, y, x), and {readable(limit)} are allowed; give --max-memory "
        f"{-(-needs(least) // (1 << 20))}MiB or more"
    )
