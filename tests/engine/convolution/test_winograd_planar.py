"""Winograd's minimal filtering between planar channels: layers of so few channels that lanes go over tiles."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from against_reference import check_network, errors
from chains import winograd_chain
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.layout import Layout
from znnpy.geometry import fit
from znnpy.network.types import Network, Triple
from znnpy.plan import LayerPlan, Method, Plan
from znnpy.plan.cost import MOST_PLANAR
from znnpy.plan.types import MARCHES

SIZES = [(3, 3, 3), (1, 3, 3), (3, 1, 3), (1, 1, 3)]
WINOGRAD = Method("winograd")
few = pytest.mark.skipif(MOST_PLANAR < 2, reason="vectors of four floats")


def planned(net: Network, weight: Method = WINOGRAD, back: Method = WINOGRAD) -> Plan:
    """All passes of all layers by winograd, weight gradients, and data gradients, as given."""
    layer = LayerPlan.of(WINOGRAD, back, weight)
    return Plan({edge.name: layer for edge in net.edges})


def planar(net: Network, output: Triple, plan: Plan, batch: int = 1) -> frozenset[str]:
    """Return the nodes that lie planar."""
    return Layout(net, fit(net, output), plan, batch, training=True).planar


class Drawn:
    """A random chain of layers of few channels: odd sizes, borders and batches."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        size = SIZES[seed % len(SIZES)]
        images = tuple(int(n) for n in rng.integers(1, MOST_PLANAR + 1, 3))
        reach = [taps - 1 for taps in size]
        low = [int(rng.integers(n + 1)) for n in reach]
        padding = tuple((n, int(rng.integers(k - n + 1))) for n, k in zip(low, reach, strict=True))
        z, y, x = (int(n) for n in rng.integers(1, [12, 26, 5 * LANES]))
        self.output, self.batch = (z, y, x), int(rng.integers(1, 4))
        self.net = winograd_chain(images, size=size, padding=padding)
        by = Method("winograd", march=MARCHES[rng.integers(2)])
        self.plan = planned(self.net, by, by)


@pytest.mark.share(100)
@few
@pytest.mark.quick(8)
@pytest.mark.parametrize("seed", range(200))
def test_values_and_gradients(seed: int) -> None:
    drawn = Drawn(seed)
    plan = drawn.plan
    assert planar(drawn.net, drawn.output, plan, drawn.batch) == {"input", "a", "b", "out"}
    # A sum so near 0 that rounding decides where a relu bends parts all gradients before it: another draw has none.
    draws = (
        errors(drawn.net, drawn.output, plan, drawn.batch, seed, threads=2) for seed in range(3)
    )
    assert any(max(found.values()) < 3e-5 for found in draws)


@few
def test_weight_gradients_may_be_spectral() -> None:
    net = winograd_chain((2, 3, 2))
    plan = planned(net, Method("spectral", (6, 8, 10)))
    assert planar(net, (5, 7, 9), plan) == {"input", "a", "b", "out"}
    assert max(errors(net, (5, 7, 9), plan, 2, threads=2).values()) < 3e-5


@pytest.mark.parametrize("others", list(product(["direct", "winograd"], repeat=3))[1:-1])
def test_passes_by_winograd_beside_others_have_lanes_over_channels(others: tuple[str, ...]) -> None:
    net, mixed = winograd_chain((2, 3, 2)), LayerPlan.of(*map(Method, others))
    plan = planned(net)
    plan = Plan(dict(plan.layers) | {"c0": mixed, "c2": mixed})
    assert planar(net, (5, 7, 9), plan) <= {"input"}
    assert max(errors(net, (5, 7, 9), plan, 2, threads=2).values()) < 3e-5


@few
@pytest.mark.quick(2)
@pytest.mark.parametrize("size", SIZES)
def test_bits_do_not_depend_on_threads(size: Triple) -> None:
    net = winograd_chain((3, 2, 4), size=size, functions=("relu",) * 3)
    found = {
        tuple(check_network(net, (5, 22, 4 * LANES + 3), threads=threads, plan=planned(net)))
        for threads in (1, 3, 8)
    }
    assert len(found) == 1


@few
@pytest.mark.parametrize(
    ("images", "sparsity", "size"),
    [
        ((3, MOST_PLANAR + 1, 3), (1, 1, 1), (3, 3, 3)),
        ((3, 3, 3), (1, 2, 1), (3, 3, 3)),
        ((3, 3, 3), (1, 1, 1), (3, 3, 1)),
    ],
)
def test_others_have_lanes_over_channels(
    images: tuple[int, ...], sparsity: Triple, size: Triple
) -> None:
    net = winograd_chain(images, sparsity, size=size)
    plan = planned(net)
    lies = planar(net, (5, 7, 9), plan)
    assert not lies & {"b", "out"}
    assert max(errors(net, (5, 7, 9), plan, 2, threads=2).values()) < 3e-5
