"""Norms over channels, and softsign, that programs write out in sums, roots and quotients: a `Term` until one is whole.

A term is a value that no feature map here holds. What reads one and makes nothing that is known is refused.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from znnpy.interop.operators.arithmetic import normed
from znnpy.interop.operators.functions import activated
from znnpy.interop.operators.sketch import Floats, Sketch
from znnpy.interop.operators.value import Term, Value

TINY = 1e-12
"""The least length, where none is written; PyTorch's `normalize` has the same."""


def is_term(*values: Value) -> bool:
    """Return whether any of the values is part of a norm."""
    return any(value.term is not None for value in values)


def term_of(value: Value) -> Term:
    """Return what a value is as a term: itself, if it is a feature map."""
    return value.term or Term("x", node=value.node)


def applied(value: Value, kind: str, number: float = 0.0) -> Value:
    """Return a term of one value: `square`, `root`, `magnitude`, `add` or `least` with a number."""
    return replace(value, term=Term(kind, (term_of(value),), number=number))


def reduced(value: Value, kind: str, axes: tuple[int, ...], seen: tuple[int, ...]) -> Value:
    """Return the sum or mean of a value over axes of the program's tensor."""
    return replace(value, term=Term(kind, (term_of(value),), axes=axes), seen=seen)


def norm(value: Value, axes: tuple[int, ...], seen: tuple[int, ...]) -> Value:
    """Return the root of the sum of squares over axes."""
    return applied(reduced(applied(value, "square"), "sum", axes, seen), "root")


def power(sketch: Sketch, x: Value, number: float) -> Value:
    """Return a value by 2 or by a half, as a term; others are refused."""
    if number not in (2, 0.5):
        raise sketch.wrong(f"by {number} is not supported")
    return applied(x, "square" if number == 2 else "root")


def of_two(sketch: Sketch, kind: str, name: str, one: Value, other: Value) -> Value:
    """Return what two values make by `add`, `mul`, `sub` or `div`, of which one is a term at least; `div` of any."""
    match kind:
        case "add":
            return total(sketch, name, one, other)
        case "mul" if one == other:
            return applied(one, "square")
        case "mul" if not (one.term and other.term):
            return product(one, other)
        case "sub" if not one.term:
            return difference(one, other)
        case "div":
            return quotient(sketch, name, one, other)
    raise sketch.wrong("of parts of a norm is not supported")


def quotient(sketch: Sketch, name: str, one: Value, other: Value) -> Value:
    """Return one by the other: a norm or softsign where both are its parts, else a term."""
    if not is_term(one, other):
        raise sketch.wrong("of two feature maps is not supported")
    above, below = term_of(one), term_of(other)
    if above.kind == "x" and below == Term("add", (Term("magnitude", (above,)),), number=1.0):
        return activated(sketch, name, one, "soft_sign")
    if above.kind == "x" and (least := _length(above, below)) is not None:
        return _of_voxels(sketch, name, one, "length", least)
    if above.kind == "away" and (epsilon := _deviation(above, below)) is not None:
        (inner, _) = above.terms
        return _of_voxels(
            sketch, name, replace(one, term=None, node=inner.node), "channel", epsilon
        )
    return replace(one, term=Term("quotient", (above, below)))


def product(one: Value, other: Value) -> Value:
    """Return the product of a feature map and a term."""
    x, term = (one, other) if other.term else (other, one)
    return replace(x, term=Term("product", (term_of(x), term_of(term))))


def difference(one: Value, other: Value) -> Value:
    """Return one minus the other."""
    return replace(one, term=Term("away", (term_of(one), term_of(other))))


def scaled(value: Value, factor: Floats | None, shift: Floats | None) -> Value:
    """Return a term by numbers for each channel, or plus such numbers."""
    kind, array = ("scaled", factor) if factor is not None else ("shifted", shift)
    assert array is not None
    if array.size == 1 and shift is not None and value.term and value.term.kind != "scaled":
        return applied(value, "add", float(f"{array.reshape(-1)[0]:.7g}"))  # stored as float32
    return replace(value, term=Term(kind, (term_of(value),), array=array.reshape(-1)))


def total(sketch: Sketch, name: str, one: Value, other: Value) -> Value:
    """Return the sum of a feature map and a term: global response normalisation, else it is refused."""
    x, written = (one, other.term) if other.term else (other, one.term)
    found = _response(x, written) if written else None
    if found is None:
        raise sketch.wrong("adds a part of a norm that is not supported")
    epsilon, scale, shift = found
    arrays = {"scale": scale, "shift": np.zeros_like(scale) if shift is None else shift}
    return normed(sketch, name, x, "response", epsilon, arrays)


def _of_voxels(sketch: Sketch, name: str, x: Value, kind: str, epsilon: float) -> Value:
    if not x.spread:
        return normed(sketch, name, x, kind, epsilon, {})
    whole = x.seen_as((x.batch, x.channels, 1, 1, 1))
    return normed(sketch, name, whole, kind, epsilon, {}).seen_as(x.seen)


def _length(x: Term, below: Term) -> float | None:
    """Return the least length, if a term is the length of x over channels."""
    least = TINY
    if below.kind == "least":
        least, (below,) = below.number, below.terms
    return least if below == _root_of_squares(x, (1,)) else None


def _root_of_squares(x: Term, axes: tuple[int, ...]) -> Term:
    return Term("root", (Term("sum", (Term("square", (x,)),), axes=axes),))


def _deviation(away: Term, below: Term) -> float | None:
    """Return epsilon, if `away` is x minus its mean over channels and `below` the root of their mean square plus it."""
    x, mean = away.terms
    if mean != Term("mean", (x,), axes=(1,)) or x.kind != "x" or below.kind != "root":
        return None
    (inner,) = below.terms
    square = Term("mean", (Term("square", (away,)),), axes=(1,))
    return inner.number if inner.kind == "add" and inner.terms == (square,) else None


def _response(x: Value, term: Term) -> tuple[float, Floats, Floats | None] | None:
    """Return epsilon, scale and shift, if a term is scale * (x * N) + shift of the response N of x."""
    shift = None
    if term.kind == "shifted":
        shift, (term,) = term.array, term.terms
    if term.kind != "scaled" or term.array is None:
        return None
    scale, (unit,) = term.array, term.terms
    own = Term("x", node=x.node)
    if unit.kind != "product" or unit.terms[0] != own or unit.terms[1].kind != "quotient":
        return None
    above, below = unit.terms[1].terms
    norms = _root_of_squares(own, tuple(range(2, len(x.seen))))
    mean = Term("mean", (norms,), axes=(1,))
    if above != norms or below.kind != "add" or below.terms != (mean,):
        return None
    return below.number, scale, shift
