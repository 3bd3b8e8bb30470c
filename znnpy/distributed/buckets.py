"""Cuts and packs gradients into messages (buckets) for the sum over ranks, and gives each a tree.

Training, the estimate that `auto` goes by, and the simulation all use it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from znnpy.distributed.reduction_tree import Ranks
from znnpy.distributed.strategies import Strategy

# 32 KiB: above, a copy into a packed message costs more than a message of its own; see the measurements at the
# end of docs/design/distributed.md.
ALONE = 32 << 10
"""Bytes from which a message is better contiguous and alone: MPI takes scattered ones apart, and packs them."""


@dataclass(frozen=True)
class Pieces:
    """Numbers of `bytes` 4 or 8 each that lie together and may be cut between pieces.

    `ends`: numbers up to the end of each piece. `owner`: the parameter or node that they belong to.
    """

    owner: str
    ends: tuple[int, ...]
    bytes: int = 4

    @property
    def pieces(self) -> int:
        """The number of pieces."""
        return len(self.ends)

    def start(self, piece: int) -> int:
        """Return how many numbers precede a piece."""
        return self.ends[piece - 1] if piece else 0

    @property
    def size(self) -> int:
        """The bytes of all pieces."""
        return self.bytes * self.ends[-1]

    def cut(self, low: int, high: int) -> Self:
        """Return pieces low..high."""
        begin = self.start(low)
        return replace(self, ends=tuple(end - begin for end in self.ends[low:high]))


P = TypeVar("P", bound=Pieces)


def in_turn(
    strategy: Strategy, layers: Iterable[Sequence[P]], ranks: Ranks
) -> Iterator[tuple[int | None, tuple[P, ...]]]:
    """Yield the messages of a strategy, layer after layer, and the color of each: they take turns.

    None instead of a color: of a layer so small that every rank adds it up, where ranks can (`Ranks.rounds`).
    Messages of a fixed tree are of one layer; those that the library adds up may be of several.
    """
    # In turn, so that each color carries about as many messages.
    colors = itertools.cycle(range(strategy.colors))
    if strategy.fixed:
        doubled = strategy.doubled if ranks.rounds() else 0
        # Layer by layer: a message of two layers would leave only when the later of both is ready.
        for layer in layers:
            size = size_of(layer)
            for bundle in bundled(layer, strategy.chunk_of(size), ALONE):
                yield None if size <= doubled else next(colors), bundle
    else:
        # Over layers: the library's sums must be few, and have no fixed order that a layer could break.
        for bundle in bundled([it for layer in layers for it in layer], strategy.chunk):
            yield next(colors), bundle


def bundled(pieces: Sequence[P], most: int, alone: int | None = None) -> list[tuple[P, ...]]:
    """Pack runs of consecutive pieces into bundles of at most `most` bytes, or of one larger piece.

    What has `alone` bytes is packed with nothing else; numbers of other sizes never are.
    """
    found, now, limit = list[tuple[P, ...]](), list[P](), most if alone is None else alone
    for run in (run for it in pieces for run in _runs(it, most)):
        if run.size >= limit:
            found.append((run,))
            continue
        # Numbers of different sizes need different additions, so they never share a message.
        if now and (size_of(now) + run.size > most or now[0].bytes != run.bytes):
            found.append(tuple(now))
            now = []
        now.append(run)
    return [*found, tuple(now)] if now else found


def size_of(bundle: Sequence[Pieces]) -> int:
    """Return the bytes of a bundle."""
    return sum(it.size for it in bundle)


def _runs(whole: P, most: int) -> Iterator[P]:
    """Yield runs of pieces of at most so many bytes, or of one piece."""
    low = 0
    for high in range(1, whole.pieces + 1):
        last = high == whole.pieces
        # A piece larger than `most` goes alone: pieces are not cut, as tasks declare them as a whole.
        if last or whole.bytes * (whole.ends[high] - whole.start(low)) > most:
            yield whole.cut(low, high)
            low = high
