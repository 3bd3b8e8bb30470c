"""Nodes of few channels lie planar only where all that writes and reads them can."""

from __future__ import annotations

from dataclasses import replace

import pytest
from znnpy_kernels.direct import few_channels
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.planar import TraitsOf, planar_nodes
from znnpy.network.types import Edge, Network, Node, Norm
from znnpy.plan import ALGORITHMS, PassName
from znnpy.plan.algorithms import Traits
from znnpy.plan.cost import FEW_IMAGES, MOST_PLANAR

MANY, FEW = 16, 3


def network(**middle: object) -> Network:
    """A node of few channels between two of many; `middle`: what else it has."""
    nodes = (
        Node("input", "input", MANY),
        replace(Node("few", "transfer", FEW), **middle),  # type: ignore[arg-type]
        Node("output", "transfer", MANY),
    )
    edges = (
        Edge("before", "conv", "input", "few", size=(3, 3, 3)),
        Edge("after", "conv", "few", "output", size=(3, 3, 3)),
    )
    return Network(nodes, edges)


def direct(edge: Edge, which: PassName) -> Traits:
    return ALGORITHMS["direct"].traits


def is_planar(net: Network, name: str, traits: TraitsOf, between: bool = False) -> bool:
    return name in planar_nodes(net, traits, lambda edge: between)


def test_few_channels_between_many_lie_planar() -> None:
    assert is_planar(network(), "few", direct)
    assert not is_planar(network(), "output", direct)


@pytest.mark.parametrize(
    "middle",
    [
        {"norm": Norm("batch")},
        {"function": "softmax"},
        {"function": "prelu"},
        {"channels": MANY},
    ],
)
def test_functions_over_channels_norms_and_slopes_need_lanes(middle: dict[str, object]) -> None:
    assert not is_planar(network(**middle), "few", direct)


@pytest.mark.parametrize("name", ["before", "after"])
def test_strides_need_lanes(name: str) -> None:
    net = network()
    edges = tuple(
        replace(edge, stride=(1, 2, 1)) if edge.name == name else edge for edge in net.edges
    )
    assert not is_planar(replace(net, edges=edges), "few", direct)


@pytest.mark.parametrize(
    ("name", "channels"), [("input", FEW), ("input", few_channels.FEW), ("output", FEW)]
)
def test_lanes_are_on_one_side_at_least(name: str, channels: int) -> None:
    net = network()
    nodes = tuple(
        replace(node, channels=channels) if node.name == name else node for node in net.nodes
    )
    assert not is_planar(replace(net, nodes=nodes), "few", direct)


@pytest.mark.lanes
@pytest.mark.parametrize("channels", [1, FEW_IMAGES // 2, FEW_IMAGES, FEW_IMAGES + 1])
def test_inputs_lie_planar_that_would_fill_at_most_half_of_the_lanes(channels: int) -> None:
    net = network()
    nodes = tuple(
        replace(node, channels=channels if node.name == "input" else MANY) for node in net.nodes
    )
    few = 2 * channels <= LANES and channels <= FEW_IMAGES
    found = planar_nodes(replace(net, nodes=nodes), direct, lambda edge: False)
    assert found == ({"input"} if few else set())


def chain(**output: object) -> Network:
    """Few channels everywhere; `output`: what else the last node has."""
    net = network(channels=FEW)
    first, few, last = net.nodes
    last = replace(last, channels=FEW, **output)  # type: ignore[arg-type]
    return replace(net, nodes=(replace(first, channels=FEW), few, last))


@pytest.mark.skipif(not MOST_PLANAR, reason="vectors of four floats")
def test_lanes_may_go_over_tiles_where_all_ends_are_planar() -> None:
    everything = planar_nodes(chain(), direct, lambda edge: True)
    assert everything == {"input", "few", "output"}
    # A node that needs lanes takes the whole chain with it, but for an input that direct reads planar.
    assert planar_nodes(chain(norm=Norm("batch")), direct, lambda edge: True) == {"input"}
    assert planar_nodes(chain(), direct, lambda edge: edge.name == "before") == {"input"}


@pytest.mark.skipif(not MOST_PLANAR, reason="vectors of four floats")
def test_an_input_has_lanes_where_only_planar_targets_are_read_planar() -> None:
    def winograd(edge: Edge, which: PassName) -> Traits:
        return ALGORITHMS["winograd"].traits

    assert planar_nodes(chain(), winograd, lambda edge: True) == {"input", "few", "output"}
    assert not planar_nodes(chain(norm=Norm("batch")), winograd, lambda edge: True)


@pytest.mark.parametrize(
    ("edge", "which", "ability"),
    [
        ("before", "forward", "writes_planar"),
        ("before", "gradient", "reads_planar_gradients"),
        ("before", "weight", "reads_planar_gradients"),
        ("after", "forward", "reads_planar"),
        ("after", "gradient", "writes_planar"),
        ("after", "weight", "reads_planar"),
    ],
)
def test_every_pass_of_every_edge_counts(edge: str, which: str, ability: str) -> None:
    def traits(one: Edge, of: PassName) -> Traits:
        found = ALGORITHMS["direct"].traits
        return replace(found, **{ability: False}) if (one.name, of) == (edge, which) else found

    assert not is_planar(network(), "few", traits)


@pytest.mark.parametrize("which", ["forward", "weight"])
def test_an_input_has_lanes_where_one_pass_reads_it_planar_beside_planar_targets_alone(
    which: PassName,
) -> None:
    def mixed(edge: Edge, asked: PassName) -> Traits:
        return ALGORITHMS["winograd" if asked == which else "direct"].traits

    assert planar_nodes(chain(), mixed, lambda edge: False) == frozenset()
