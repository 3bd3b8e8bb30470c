"""Joins the operators of a sketch: convolution, norm and function become one node, padding part of its reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from znnpy.interop.operators.sketch import Bench, Link, Sketch
from znnpy.layers.types import BARE


def fused(sketch: Sketch, outputs: Sequence[str]) -> None:
    """Take away what no output needs, then join what one node can do; names of outputs stay nodes."""
    _drop_unread(sketch, outputs)
    readers, arriving = _ends(sketch)
    for name in list(sketch.nodes):
        _join_before(sketch, name, readers, arriving, outputs)
    for name in list(sketch.links):
        _join_sums(sketch, name, readers, arriving, outputs)
    for name, link in list(sketch.links.items()):
        if link.kind == "pad" and name in sketch.links:
            _join_padding(sketch, name, readers, arriving, outputs)


def _drop_unread(sketch: Sketch, outputs: Sequence[str]) -> None:
    before: dict[str, list[str]] = {}
    for link in sketch.links.values():
        before.setdefault(link.target, []).append(link.source)
    needed, pending = set[str](), list(outputs)
    while pending:
        if (name := pending.pop()) not in needed:
            needed.add(name)
            pending += before.get(name, [])
    inputs = {name for name, bench in sketch.nodes.items() if bench.kind == "input"}
    sketch.nodes = {name: it for name, it in sketch.nodes.items() if name in needed | inputs}
    sketch.links = {name: it for name, it in sketch.links.items() if it.target in needed}


Names = dict[str, list[str]]


def _ends(sketch: Sketch) -> tuple[Names, Names]:
    """Return the links that leave each node, and those that enter it."""
    readers: Names = {name: [] for name in sketch.nodes}
    arriving: Names = {name: [] for name in sketch.nodes}
    for name, link in sketch.links.items():
        readers[link.source].append(name)
        arriving[link.target].append(name)
    return readers, arriving


def _join_before(
    sketch: Sketch, name: str, readers: Names, arriving: Names, outputs: Sequence[str]
) -> None:
    """Let a transfer node take over what the node before it does, if nothing else reads that."""
    bench = sketch.nodes[name]
    while bench.kind == "transfer" and len(arriving[name]) == 1:
        only = arriving[name][0]
        link = sketch.links[only]
        first, before = link.source, sketch.nodes[link.source]
        if link.kind != "identity" or len(readers[first]) > 1:
            return
        joined = _together(before, bench)
        if joined is None:
            return
        # The name that stays is that of the norm, else that of what has filters.
        own = name in outputs or ("norm" in bench.keys and "norm" not in before.keys)
        del sketch.links[only], sketch.nodes[name], sketch.nodes[first]
        stays = name if own else first
        entering, leaving = arriving.pop(first), readers[name]
        for other in entering:
            sketch.links[other].target = stays
        for other in leaving:
            sketch.links[other].source = stays
        arriving[stays], readers[stays] = entering, leaving
        sketch.nodes[stays] = bench = joined
        name = stays


def _join_sums(
    sketch: Sketch, name: str, readers: Names, arriving: Names, outputs: Sequence[str]
) -> None:
    """Let what a sum adds up go into the sum that alone reads it: residual blocks copy nothing then."""
    link = sketch.links[name]
    inner, outer = sketch.nodes[link.source], sketch.nodes[link.target]
    nothing = inner.factor is None and not inner.keys and not inner.arrays
    adds = {inner.kind, outer.kind} <= {"sum", "transfer"} and outer.factor is None
    alone = readers[link.source] == [name] and link.source not in outputs
    if link.kind != "identity" or not (nothing and adds and alone) or not arriving[link.source]:
        return
    for other in arriving[link.source]:
        sketch.links[other].target = link.target
    arriving[link.target] = [it for it in arriving[link.target] if it != name]
    arriving[link.target] += arriving.pop(link.source)
    del sketch.links[name], sketch.nodes[link.source]


def _together(one: Bench, other: Bench) -> Bench | None:
    """Return a node that does what two do after each other; None if none can."""
    if one.kind not in ("sum", "transfer") or _function(one):
        return None
    if one.factor is not None:
        return _factors(one, other)
    keys, arrays = {**one.keys, **other.keys}, {**one.arrays, **other.arrays}
    if "norm" in one.keys:
        if "norm" in other.keys:
            return None
        if other.factor is not None or "bias" in other.arrays:
            return _affine(one, other)
        return Bench("transfer", other.channels, other.size, keys, arrays)
    if other.factor is not None or "bias" in one.arrays.keys() & other.arrays.keys():
        return None
    return Bench(
        "transfer", other.channels, other.size, keys, arrays, None, one.learns and other.learns
    )


def _factors(one: Bench, other: Bench) -> Bench | None:
    """Return one factor for two that do not learn, none if that is 1; None where there is more to do."""
    more = {*one.arrays, *other.arrays} or {**one.keys, **other.keys}
    if one.learns or other.learns or other.factor is None or one.factor is None or more:
        return None
    factor = one.factor * other.factor
    found = None if np.all(factor == 1) else factor
    return Bench("transfer", other.channels, other.size, {}, {}, found, learns=False)


def _affine(one: Bench, other: Bench) -> Bench | None:
    """Return a norm with the factor and the shift that follow it as its own; None where it has some already."""
    kept = one.arrays.keys() & {"scale", "shift"}
    if not other.learns or _function(other):
        return None
    arrays, norm = dict(one.arrays), {**one.keys["norm"], "affine": True}
    if other.factor is not None and not kept:
        arrays |= {"scale": other.factor, "shift": other.arrays.get("bias", 0 * other.factor)}
    elif other.factor is None and "scale" in kept and not one.arrays["shift"].any():
        arrays["shift"] = other.arrays["bias"]
    else:
        return None
    return Bench("transfer", other.channels, other.size, {**one.keys, "norm": norm}, arrays)


def _function(bench: Bench) -> bool:
    return bool(bench.keys.get("function", "linear") != "linear")


def _join_padding(
    sketch: Sketch, name: str, readers: Names, arriving: Names, outputs: Sequence[str]
) -> None:
    """Let the convolutions that read a padded node pad for themselves, where all of them can."""
    pad = sketch.links[name]
    node, border = pad.target, pad.keys.get("border", "zeros")
    reading = [sketch.links[reader] for reader in readers[node]]
    alone = node not in outputs and arriving[node] == [name] and sketch.nodes[node].kind == "sum"
    if alone and reading and all(_takes(link, pad.keys["padding"], border) for link in reading):
        for link in reading:
            own = link.keys.get("padding", BARE)
            both = [
                [a + b for a, b in zip(one, other, strict=True)]
                for one, other in zip(own, pad.keys["padding"], strict=True)
            ]
            link.keys["padding"] = both
            if border != "zeros":
                link.keys["border"] = border
            link.source = pad.source
        readers[pad.source] = [*(n for n in readers[pad.source] if n != name), *readers[node]]
        del sketch.links[name], sketch.nodes[node]


def _takes(link: Link, padding: Any, border: str) -> bool:
    if link.kind != "conv" or (border != "zeros" and "padding" in link.keys):
        return False
    steps = link.keys.get("sparsity", [1, 1, 1])
    own = link.keys.get("padding", BARE)
    along = zip(link.keys["size"], steps, own, padding, strict=True)
    reach: list[tuple[int, int]] = [
        (max(a + b for a, b in zip(one, other, strict=True)), (size - 1) * step)
        for size, step, one, other in along
    ]
    return not any(padded > most for padded, most in reach)
