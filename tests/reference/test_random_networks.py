"""The generator of random networks covers what it promises."""

from fractions import Fraction
from typing import get_args

import pytest
from random_networks import random_batch, random_inputs, random_network, random_parameters

from znnpy.geometry import fit
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.layers.edge_kind import NodeKind
from znnpy.layers.edges import EDGE_KINDS
from znnpy.layers.types import BARE, BorderName, NormKind
from znnpy.network.types import Network
from znnpy.reference import forward

SEEDS = range(70)


@pytest.fixture(scope="module")
def networks():
    return [random_network(seed) for seed in SEEDS]


def edges_of(networks, kind):
    return [edge for network, _ in networks for edge in network.edges if edge.kind == kind]


def test_every_kind_and_function_occurs(networks):
    nodes = [node for network, _ in networks for node in network.nodes]
    assert {node.kind for node in nodes} == {*get_args(NodeKind)}
    assert {node.function for node in nodes} == {*FUNCTIONS}
    assert {node.bias for node in nodes if node.kind == "transfer"} == {True, False}
    assert {node.norm.kind for node in nodes if node.norm} == {*get_args(NormKind)}
    assert any(max(edge.repeat) > 1 for edge in edges_of(networks, "conv"))
    assert {node.amplitude for node in nodes} == {1, 1.7159}
    for kind in EDGE_KINDS:
        assert len(edges_of(networks, kind)) >= 10, kind
    assert min(node.channels for node in nodes) == 1
    assert max(node.channels for node in nodes if node.kind == "transfer") >= 20


def test_filters_strides_and_sparsities_are_of_all_sorts(networks):
    convs = edges_of(networks, "conv")
    assert {size for edge in convs for size in edge.size} >= {1, 2, 3, 4, 5}
    assert any(len(set(edge.size)) > 1 for edge in convs)
    assert any(max(edge.stride) > 1 for edge in convs)
    assert any(max(edge.stride) > 1 for edge in edges_of(networks, "max_pool"))
    assert any(max(edge.sparsity) > 1 for edge in convs)
    inherited = [
        dilation
        for network, shape in networks
        for name, dilation in fit(network, shape).dilations.items()
        if dilation != next(edge.sparsity for edge in network.edges if edge.name == name)
    ]
    assert len(inherited) > 10


def test_paddings_groups_and_growth_are_of_all_sorts(networks):
    convs = edges_of(networks, "conv")
    padded = [edge for edge in convs if edge.padding != BARE]
    assert {edge.border for edge in padded} == {*get_args(BorderName)}
    assert any(edge.padding == "same" for edge in padded)
    uneven = [e for e in padded if e.padding != "same" and any(a != b for a, b in e.padding)]
    assert len(uneven) > 5
    assert any(max(edge.stride) > 1 for edge in uneven)
    assert any(edge.groups > 2 for edge in convs)
    standardized = [edge for edge in convs if edge.weight_standardization]
    assert any(edge.groups > 1 for edge in standardized)
    assert any(max(edge.repeat) > 1 for edge in standardized)
    assert any(max(edge.output_padding) for edge in edges_of(networks, "conv_transpose"))
    assert any(max(edge.stride) > 1 for edge in edges_of(networks, "conv_transpose"))
    assert {edge.mode for edge in edges_of(networks, "upsample")} == {"nearest", "linear"}
    for kind in ("max_pool", "avg_pool"):
        assert any(edge.padding != BARE for edge in edges_of(networks, kind))
    assert {edge.count_padding for edge in edges_of(networks, "avg_pool")} == {True, False}
    strides = [node.stride for net, shape in networks for node in fit(net, shape).nodes.values()]
    assert any(isinstance(step, Fraction) for stride in strides for step in stride)


def test_graphs_branch_and_meet(networks):
    assert {len(network.inputs) for network, _ in networks} == {1, 2}
    assert {len(network.outputs) for network, _ in networks} == {1, 2}
    assert any(isinstance(shape, dict) for _, shape in networks)
    for kind in ("transfer", "sum", "max", "concat", "product"):
        assert any(
            node.kind == kind and len(network.incoming(node.name)) > 1
            for network, _ in networks
            for node in network.nodes
        )


def test_batches_are_of_one_microbatch_and_of_several(networks):
    sizes = {
        random_batch(network, fit(network, shape), seed)
        for seed, (network, shape) in zip(SEEDS, networks, strict=True)
    }
    assert sizes == {(2, 2), (2, 1), (3, 1), (4, 2), (6, 2)}


def test_names_are_unique_and_order_is_topological(networks):
    for network, _ in networks:
        names = [node.name for node in network.nodes]
        both = names + [edge.name for edge in network.edges]
        assert len(both) == len(set(both))
        assert all(names.index(edge.source) < names.index(edge.target) for edge in network.edges)


def test_a_seed_is_a_network(networks):
    assert [random_network(seed) for seed in range(5)] == networks[:5]


def test_reference_agrees_with_geometry_on_every_shape(networks):
    for seed, (network, output_shape) in zip(SEEDS, networks, strict=True):
        values = evaluate(network, output_shape, seed)
        geometry = fit(network, output_shape)
        for node in network.nodes:
            assert values[node.name].shape == (1, node.channels, *geometry.nodes[node.name].shape)


def evaluate(network: Network, output_shape, seed: int):
    geometry = fit(network, output_shape)
    parameters = random_parameters(network, seed)
    return forward(network, geometry, parameters, random_inputs(network, geometry, seed))
