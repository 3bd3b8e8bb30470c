"""The mutex watershed as its paper has it, on sets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from znnpy.data.volume import Triple


def brute_force(
    values: np.ndarray, offsets: Sequence[Triple], near: int, joined: np.ndarray | None = None
) -> np.ndarray:
    """The paper's algorithm on sets: edges from sure to unsure; a repulsion forbids later unions.

    `joined`: labels (z, y, x) of what is together before all.
    """
    shape = values.shape[1:]
    edges = []
    for k, place in [(k, p) for k in range(len(offsets)) for p in np.ndindex(shape)]:
        other = tuple(a + o for a, o in zip(place, offsets[k], strict=True))
        if all(0 <= a < n for a, n in zip(other, shape, strict=True)):
            edges.append((-float(values[(k, *place)]), k < near, place, other))
    together = np.arange(values[0].size).reshape(shape) if joined is None else joined
    sets: dict[int, set[tuple[int, ...]]] = {int(number): set() for number in np.unique(together)}
    for place in np.ndindex(shape):
        sets[int(together[place])].add(place)
    cluster = {place: sets[int(together[place])] for place in np.ndindex(shape)}
    foes: dict[int, set[int]] = {id(c): set() for c in cluster.values()}
    for _, attractive, a, b in sorted(edges, key=lambda edge: edge[0]):
        one, two = cluster[a], cluster[b]
        if one is two:
            continue
        if not attractive:
            foes[id(one)].add(id(two))
            foes[id(two)].add(id(one))
        elif id(two) not in foes[id(one)]:
            one |= two
            for foe in foes.pop(id(two)):
                foes[foe].discard(id(two))
                foes[foe].add(id(one))
                foes[id(one)].add(foe)
            for place in two:
                cluster[place] = one
    labels = np.zeros(shape, int)
    for number, members in enumerate({id(c): c for c in cluster.values()}.values(), start=1):
        for place in members:
            labels[place] = number
    return labels
