"""What one message carries: pieces of totals, of one layer or of several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from znnpy.engine.layers.totals import Total
from znnpy.network.types import Network

Bundle = tuple[Total, ...]
"""Pieces of totals that go together; all are numbers of the same size."""


def by_layer(network: Network, totals: Iterable[Total]) -> list[list[Total]]:
    """Totals of the same layer together, in the order in which backward passes make them."""
    targets = {edge.name: edge.target for edge in network.edges}
    layers: dict[str, list[Total]] = {node.name: [] for node in reversed(network.nodes)}
    for total in totals:
        node = targets.get(total.owner, total.owner)
        layers[node if node in layers else node.rpartition(".")[0]].append(total)
    return [layer for layer in layers.values() if layer]


def bundled(totals: Sequence[Total], most: int, alone: int | None = None) -> list[Bundle]:
    """Runs of pieces one after the other, packed into bundles of `most` bytes, or of one larger piece.

    What has `alone` bytes is packed with nothing else.
    """
    found, now, limit = list[Bundle](), list[Total](), most if alone is None else alone
    for run in (run for total in totals for run in _runs(total, most)):
        if run.size >= limit:
            found.append((run,))
            continue
        if now and (size_of(now) + run.size > most or now[0].bytes != run.bytes):
            found.append(tuple(now))
            now = []
        now.append(run)
    return [*found, tuple(now)] if now else found


def size_of(bundle: Sequence[Total]) -> int:
    """Bytes."""
    return sum(total.size for total in bundle)


def _runs(total: Total, most: int) -> Iterator[Total]:
    """The total in runs of pieces of at most so many bytes, or of one piece."""
    low = 0
    for high in range(1, total.pieces + 1):
        last = high == total.pieces
        if last or total.bytes * (total.ends[high] - total.start(low)) > most:
            yield total.cut(low, high)
            low = high
