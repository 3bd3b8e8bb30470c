"""Generates short Fourier transforms as networks of additions and multiplications by constants.

A network is built symbolically: zeros vanish, signs are carried along, and equal expressions are one node, so that a
transform of real lines costs half of a complex one without a formula of its own. `transposed` reverses a network,
which gives the transform from a real line's spectrum to the line out of its opposite. Powers of two by split radix,
coprime factors by Good's mapping, primes as they are.

M. Frigo, "A fast Fourier transform compiler", PLDI 1999, describes both ideas.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, reduce

import numpy as np

# Kinds of nodes. Differences are sums with the constant -1, so signs need no kind of their own.
INPUT, SUM, PRODUCT = "input", "sum", "product"
# Angles are computed in float64 to about 1e-16, factors of a network lie far above 1e-9: what is between is
# rounding of 0 or 1.
TINY = 1e-9


@dataclass(frozen=True)
class Node:
    """An input, `left + constant * right` (constant 1 or -1), or `constant * left`, constant > 0."""

    kind: str
    number: int
    left: int = -1
    right: int = -1
    constant: float = 0.0


# A node with a sign; None is exactly zero.
Value = tuple[int, Node] | None
Complex = tuple[Value, Value]


@dataclass
class Network:
    """Nodes in the order of their creation; `outputs` are the signed results."""

    nodes: list[Node] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    _known: dict[tuple[object, ...], Node] = field(default_factory=dict)

    def _node(self, kind: str, left: int, right: int, constant: float) -> Node:
        # As float32, as code uses it: equal constants are one node though their float64 differ in the last
        # bits.
        key = (kind, left, right, np.float32(constant))
        if key not in self._known:
            node = Node(kind, len(self.nodes), left, right, constant)
            self.nodes.append(node)
            self._known[key] = node
        return self._known[key]

    def input(self, index: int) -> Value:
        """Return input `index`."""
        return 1, self._node(INPUT, index, -1, 0.0)

    def add(self, x: Value, y: Value) -> Value:
        """Return x + y."""
        if x is None or y is None:
            return y if x is None else x
        if x[1] is y[1]:
            return self.scale(x, 2.0) if x[0] == y[0] else None
        # In one order, so that x + y and y + x are one node; the sign of the first goes out of the sum.
        if x[1].number > y[1].number:
            x, y = y, x
        return x[0], self._node(SUM, x[1].number, y[1].number, float(x[0] * y[0]))

    def scale(self, x: Value, constant: float) -> Value:
        """Return constant * x."""
        if x is None or abs(constant) < TINY:
            return None
        sign, node = (x[0] if constant > 0 else -x[0]), x[1]
        constant = abs(constant)
        # Products of products are one: constants meet where twiddle factors follow each other.
        if node.kind == PRODUCT:
            constant, node = constant * node.constant, self.nodes[node.left]
        if abs(constant - 1.0) < TINY:
            return sign, node
        return sign, self._node(PRODUCT, node.number, -1, constant)

    def plus(self, x: Complex, y: Complex) -> Complex:
        """Return x + y."""
        return self.add(x[0], y[0]), self.add(x[1], y[1])

    def minus(self, x: Complex, y: Complex) -> Complex:
        """Return x - y."""
        return self.plus(x, self.times(y, -1.0))

    def times(self, x: Complex, by: complex) -> Complex:
        """Return x times a constant."""
        real, imaginary = complex(by).real, complex(by).imag
        return (
            self.add(self.scale(x[0], real), self.scale(x[1], -imaginary)),
            self.add(self.scale(x[0], imaginary), self.scale(x[1], real)),
        )

    def needed(self) -> list[bool]:
        """Return which nodes lead to an output."""
        used = [False] * len(self.nodes)
        for value in self.outputs:
            if value is not None:
                used[value[1].number] = True
        # Backwards: operands are always made before the nodes that use them.
        for node in reversed(self.nodes):
            if used[node.number] and node.kind != INPUT:
                used[node.left] = True
                if node.kind == SUM:
                    used[node.right] = True
        return used


def transform(net: Network, x: Sequence[Complex]) -> list[Complex]:
    """Return the discrete Fourier transform of x, exponent -2 pi i j k / n."""
    n = len(x)
    if n in _SMALL:
        return _SMALL[n](net, x)
    # Good's mapping for coprime factors: 6, 10, 12, 14, 15, 18, 20, 22, 24, 28 and 30.
    for prime in (3, 5, 7, 11):
        # The whole power of the prime; 8 is more than any size here has.
        power = math.gcd(n, prime**8)
        if 1 < power < n:
            return _coprime(net, x, power)
    return _nine(net, x) if n == 9 else _split_radix(net, x)


def _one(net: Network, x: Sequence[Complex]) -> list[Complex]:
    return list(x)


def _two(net: Network, x: Sequence[Complex]) -> list[Complex]:
    return [net.plus(x[0], x[1]), net.minus(x[0], x[1])]


def _three(net: Network, x: Sequence[Complex]) -> list[Complex]:
    both, turned = net.plus(x[1], x[2]), net.minus(x[1], x[2])
    turned = net.times(turned, -1j * math.sin(2 * math.pi / 3))
    middle = net.plus(x[0], net.times(both, -0.5))
    return [net.plus(x[0], both), net.plus(middle, turned), net.minus(middle, turned)]


def _four(net: Network, x: Sequence[Complex]) -> list[Complex]:
    even, odd = _two(net, x[0::2]), _two(net, x[1::2])
    turned = net.times(odd[1], -1j)
    return [
        net.plus(even[0], odd[0]),
        net.plus(even[1], turned),
        net.minus(even[0], odd[0]),
        net.minus(even[1], turned),
    ]


def _prime(net: Network, x: Sequence[Complex]) -> list[Complex]:
    """Transform by sums and differences of x[j] and x[-j], each times its cosines or sines: multiply-adds."""
    n, half = len(x), range(1, len(x) // 2 + 1)
    sums = [net.plus(x[j], x[n - j]) for j in half]
    differences = [net.minus(x[j], x[n - j]) for j in half]
    out: list[Complex] = [(None, None)] * n
    out[0] = reduce(net.plus, sums, x[0])
    for k in half:
        # The angle's numerator modulo n, so that cosines of equal angles are equal bit by bit.
        angles = [2 * math.pi * (j * k % n) / n for j in half]
        cosines = map(net.times, sums, map(math.cos, angles))
        sines = map(net.times, differences, map(math.sin, angles))
        middle, turned = reduce(net.plus, cosines, x[0]), reduce(net.plus, sines)
        turned = net.times(turned, -1j)
        out[k], out[n - k] = net.plus(middle, turned), net.minus(middle, turned)
    return out


# Primes as sums and differences; 4 without products; what is left is 8, 9, 16, 32 and products of coprime
# factors.
_SMALL = {1: _one, 2: _two, 3: _three, 4: _four, 5: _prime, 7: _prime, 11: _prime, 17: _prime}


def _nine(net: Network, x: Sequence[Complex]) -> list[Complex]:
    """Three transforms of three, twiddle factors, three transforms of three."""
    rows = [transform(net, x[i::3]) for i in range(3)]
    out: list[Complex] = [(None, None)] * 9
    for k in range(3):
        roots = [cmath.exp(-2j * math.pi * i * k / 9) for i in range(3)]
        column = [net.times(row[k], root) for row, root in zip(rows, roots, strict=True)]
        out[k::3] = transform(net, column)
    return out


def _coprime(net: Network, x: Sequence[Complex], first: int) -> list[Complex]:
    """Good's mapping: no twiddle factors between the factors."""
    # Ruritanian order in, that of the Chinese remainders out: the exponents of both factors separate.
    n, second = len(x), len(x) // first
    rows = [
        transform(net, [x[(second * i + first * j) % n] for j in range(second)])
        for i in range(first)
    ]
    columns = [transform(net, [row[k] for row in rows]) for k in range(second)]
    return [columns[k % second][k % first] for k in range(n)]


def _split_radix(net: Network, x: Sequence[Complex]) -> list[Complex]:
    """Conjugate-pair split radix, for n a power of two of at least 8."""
    n = len(x)
    quarter = n // 4
    even = transform(net, x[0::2])
    after = transform(net, x[1::4])
    # x[4 j - 1] instead of x[4 j + 3]: its twiddle factors are the conjugates of those of x[4 j + 1], so their
    # products are shared.
    before = transform(net, [x[(4 * j - 1) % n] for j in range(quarter)])
    out: list[Complex] = [(None, None)] * n
    for k in range(quarter):
        root = cmath.exp(-2j * math.pi * k / n)
        right, left = net.times(after[k], root), net.times(before[k], root.conjugate())
        both, turned = net.plus(right, left), net.times(net.minus(right, left), -1j)
        out[k], out[k + 2 * quarter] = net.plus(even[k], both), net.minus(even[k], both)
        out[k + quarter] = net.plus(even[k + quarter], turned)
        out[k + 3 * quarter] = net.minus(even[k + quarter], turned)
    return out


@cache
def complex_network(n: int, taken: int, given: int) -> Network:
    """2 * taken inputs (real and imaginary part in turn; the rest is 0) to 2 * given outputs."""
    net = Network()
    x: list[Complex] = [(net.input(2 * k), net.input(2 * k + 1)) for k in range(taken)]
    x += [(None, None)] * (n - taken)
    net.outputs = [part for value in transform(net, x)[:given] for part in value]
    return net


@cache
def real_network(n: int) -> Network:
    """n real inputs to n // 2 + 1 frequencies, real and imaginary part in turn."""
    net = Network()
    x: list[Complex] = [(net.input(k), None) for k in range(n)]
    half = transform(net, x)[: n // 2 + 1]
    net.outputs = [part for value in half for part in value]
    return net


@cache
def hermitian_network(n: int) -> Network:
    """n // 2 + 1 frequencies to half of the n unnormalised real elements (1: the whole element)."""
    net = Network()
    # Frequencies 0 and n / 2 stand for one element of the spectrum, the others for two: halved here, doubled in
    # `lines_function`.
    single = {0, n / 2} if n > 1 else set()
    given = [
        net.scale(net.input(index), 0.5 if index // 2 in single else 1.0)
        for index in range(2 * (n // 2 + 1))
    ]
    # The transposed network of the real transform: the matrix of cosines and sines, the other way round.
    return transposed(real_network(n), n, net, given)


def transposed(net: Network, inputs: int, target: Network, given: list[Value]) -> Network:
    """Return the network of the transposed matrix: `given` stand for the outputs of `net`."""
    # Reversed, sums become copies and copies sums: every operation of the original is one of the transposed.
    sums: list[Value] = [None] * len(net.nodes)
    for value, output in zip(given, net.outputs, strict=True):
        if output is not None:
            sign, node = output
            sums[node.number] = target.add(sums[node.number], target.scale(value, float(sign)))
    found: dict[int, Value] = {}
    for node in reversed(net.nodes):
        value = sums[node.number]
        if node.kind == INPUT:
            found[node.left] = value
        elif node.kind == PRODUCT:
            sums[node.left] = target.add(sums[node.left], target.scale(value, node.constant))
        else:
            sums[node.left] = target.add(sums[node.left], value)
            sums[node.right] = target.add(sums[node.right], target.scale(value, node.constant))
    target.outputs = [found.get(index) for index in range(inputs)]
    return target


def operations(net: Network) -> tuple[int, int]:
    """Return the numbers of additions and multiplications of a network."""
    kinds = [node.kind for node, used in zip(net.nodes, net.needed(), strict=True) if used]
    return kinds.count(SUM), kinds.count(PRODUCT)
