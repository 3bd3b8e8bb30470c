"""Resizes of a program to some size: which numbers say them for feature maps of any size."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from znnpy.interop.operators.sketch import Sketch
from znnpy.interop.operators.value import Value
from znnpy.interop.operators.windows import padded
from znnpy.layers.edges import edge_kind
from znnpy.layers.types import ONCE, Interpolation, Numbers
from znnpy.network.types import Triple

Steps = tuple[Fraction, Fraction, Fraction]
Said = tuple[Steps, Triple]
"""By how much feature maps grow, z y x, and how many voxels more they have then."""


def grown(
    sketch: Sketch,
    name: str,
    x: Value,
    size: Triple,
    mode: Interpolation,
    said: Said | None = None,
    *,
    alone: bool = False,
) -> Value:
    """Add a resize; means over all of space become what they are at each voxel.

    `said`: what the program tells. Else, where another feature map has the new size, theirs is taken to be as large as
    that one, whatever the image: the voxels of both lie equally far apart; or the size is that of `x` times a fraction.
    `alone`: nothing else reads `x`, so that resizes of several axes, one after the other, become one.
    """
    sketch.refuse_rearranged(x)
    if x.spread:
        if size != x.size:
            raise sketch.wrong(f"spreads a mean to {size} voxels, and it is one of {x.size}")
        space = size[3 - x.dimensions :]
        return Value(x.node, x.channels, x.size, (x.batch, x.channels, *space))
    if size == x.size:
        return x
    ratios, more = said or _said(sketch, x, size)
    if alone and (before := _joined(sketch, x, ratios, more, mode)):
        x, ratios, more, mode = before
    if not any(more) and all(by.denominator == 1 for by in ratios):
        plain = "nearest" if mode == "nearest_exact" else mode
        factor = [by.numerator for by in ratios]
        return sketch.operated(name, x, "upsample", {"factor": factor, "mode": plain})
    if mode == "nearest" and all(by == 1 for by in ratios) and max(map(abs, more)) == 1:
        # The first voxel is there twice, or the last is not there.
        z, y, w = ((n, 0) if n > 0 else (0, n) for n in more)
        return padded(sketch, name, x, (z, y, w), "replicate")
    keys = {
        "factor": [by.numerator for by in ratios],
        "divisor": [by.denominator for by in ratios],
        "more": list(more),
        "mode": mode,
    }
    return sketch.operated(name, x, "resize", {k: v for k, v in keys.items() if v != _USUAL.get(k)})


_USUAL = {"factor": [1, 1, 1], "divisor": [1, 1, 1], "more": [0, 0, 0]}


def _said(sketch: Sketch, x: Value, size: Triple) -> Said:
    ratios = _ratios(sketch, x, size)
    z, y, w = (new - int(old * by) for new, old, by in zip(size, x.size, ratios, strict=True))
    return ratios, (z, y, w)


def _joined(
    sketch: Sketch, x: Value, ratios: Steps, more: Triple, mode: Interpolation
) -> tuple[Value, Steps, Triple, Interpolation] | None:
    """Take back the resize of other axes by nearest voxels that made `x`; return its source, and what both do."""
    made = [(name, link) for name, link in sketch.links.items() if link.target == x.node]
    if len(made) != 1 or made[0][1].kind not in ("resize", "upsample"):
        return None
    (name, link), keys = made[0], _USUAL | {"mode": "nearest"} | made[0][1].keys
    whole = not any(more) and all(by.denominator == 1 for by in ratios)  # alike in both modes
    own = mode if link.kind == "upsample" else keys["mode"]
    modes = {mode, own} if not whole else {own}
    grows = [Fraction(a, b) for a, b in zip(keys["factor"], keys["divisor"], strict=True)]
    free = zip(grows, keys["more"], ratios, more, strict=True)
    if (
        not keys["mode"].startswith("nearest")
        or len(modes) > 1
        or any((a != 1 or n) and (b != 1 or m) for a, n, b, m in free)
    ):
        return None
    source = sketch.nodes[link.source]
    seen = (x.batch, x.channels, *source.size[3 - x.dimensions :])
    del sketch.links[name], sketch.nodes[x.node]
    z, y, w = (a * b for a, b in zip(grows, ratios, strict=True))
    i, j, k = (n + m for n, m in zip(keys["more"], more, strict=True))
    return Value(link.source, x.channels, source.size, seen), (z, y, w), (i, j, k), modes.pop()


def _ratios(sketch: Sketch, x: Value, size: Triple) -> Steps:
    """Return by how much the voxels of `x` lie further apart than those of a feature map of that size."""
    z, y, w = (Fraction(new, old) for new, old in zip(size, x.size, strict=True))
    sure = all(n > 1 or by == 1 for n, by in zip(x.size, (z, y, w), strict=True))
    if sure and (z.denominator, y.denominator, w.denominator) == (1, 1, 1):
        return z, y, w
    strides = _strides(sketch)
    own = strides[x.node]
    found: list[Steps] = []
    for name, bench in sketch.nodes.items():
        if bench.size == size:
            a, b, c = (mine / its for mine, its in zip(own, strides[name], strict=True))
            if all((n * by).denominator == 1 for n, by in zip(x.size, (a, b, c), strict=True)):
                found.append((a, b, c))
    return min(found, key=lambda ratios: _added(x.size, ratios, size), default=(z, y, w))


def _added(old: Triple, ratios: Steps, new: Triple) -> Fraction:
    """Return how many voxels ratios leave to be added or taken away."""
    along = zip(old, ratios, new, strict=True)
    return sum((abs(m - n * by) for n, by, m in along), Fraction(0))


def _strides(sketch: Sketch) -> Mapping[str, Steps]:
    """Return by node how far its voxels lie apart, in voxels of the input."""
    once = Fraction(1)
    found: dict[str, Steps] = {}
    for link in sketch.links.values():
        if link.target in found:
            continue
        kind = edge_kind(link.kind)
        numbers = Numbers(**kind.numbers(kind.keys.model_validate(link.keys)))
        z, y, x = (
            step * Fraction(along.shrinks, along.grows)
            for step, along in zip(
                found.get(link.source, (once, once, once)), kind.sizes(numbers, ONCE), strict=True
            )
        )
        found[link.target] = z, y, x
    return {name: found.get(name, (once, once, once)) for name in sketch.nodes}
