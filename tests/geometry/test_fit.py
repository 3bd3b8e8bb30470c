"""Shapes against counting by hand and against NumPy's own valid sliding windows."""

import pytest

from znnpy.errors import NetworkError, ShapeError
from znnpy.geometry import fit, fit_input
from znnpy.network.types import Edge, Network, Node


def chain(*edges: Edge) -> Network:
    nodes = [Node("input", "input", 1)]
    nodes += [Node(edge.target, "transfer", 1) for edge in edges]
    return Network(tuple(nodes), edges)


def conv(index, size=3, **more):
    return Edge(
        f"e{index}",
        "conv",
        "input" if index == 1 else f"n{index - 1}",
        f"n{index}",
        size=(size,) * 3,
        **more,
    )


def max_filter(index, size=2):
    return Edge(
        f"e{index}",
        "max_filter",
        f"n{index - 1}",
        f"n{index}",
        size=(size,) * 3,
        sparsens=(size,) * 3,
    )


def test_benchmark_net_has_the_papers_field_of_view():
    net = chain(conv(1), max_filter(2), conv(3), max_filter(4), conv(5), conv(6))
    geometry = fit(net, (12, 12, 12))
    assert geometry.dilations["e6"] == (4, 4, 4)
    # 1 + 4*2 + 4*2 + 2 + 2*2 + 1 + 2, counted by hand
    assert geometry.fields_of_view["input"] == (26, 26, 26)
    assert geometry.input_shapes["input"] == (37, 37, 37)
    assert geometry.output_offset("input") == (12, 12, 12)


def test_strides_and_anisotropic_filters():
    net = chain(Edge("e1", "conv", "input", "n1", size=(1, 3, 4), stride=(1, 2, 3)), conv(2))
    geometry = fit(net, (2, 2, 2))
    assert geometry.nodes["n1"].shape == (4, 4, 4)
    assert geometry.input_shapes["input"] == (4, 9, 13)
    assert geometry.nodes["n2"].stride == (1, 2, 3)
    with pytest.raises(ShapeError, match="4 x 9 x 13 and 4 x 11 x 13"):
        fit_input(net, (4, 10, 13))
    assert fit_input(net, (4, 9, 13)).output_shapes["n2"] == (2, 2, 2)


def test_converging_paths_of_different_reach_ask_for_a_crop():
    nodes = (Node("input", "input", 1), Node("a", "transfer", 1), Node("out", "sum", 1))
    edges = (
        Edge("e1", "conv", "input", "a", size=(3, 3, 3)),
        Edge("e2", "conv", "a", "out", size=(3, 3, 3)),
        Edge("e3", "conv", "input", "out", size=(1, 1, 1)),
    )
    with pytest.raises(NetworkError, match=r"crop edge with offset 2 x 2 x 2 before 'e3'"):
        fit(Network(nodes, edges), (4, 4, 4))


def test_different_sparsities_cannot_converge():
    nodes = (Node("input", "input", 1), Node("out", "sum", 1))
    edges = (
        Edge("a", "max_filter", "input", "out", size=(2, 2, 2), sparsens=(2, 2, 2)),
        Edge("b", "conv", "input", "out", size=(2, 2, 2)),
    )
    with pytest.raises(NetworkError, match=r"'a' brings 2 x 2 x 2 and 'b' brings 1 x 1 x 1"):
        fit(Network(nodes, edges), (4, 4, 4))


def test_true_stride_after_a_sparse_layer_is_refused():
    net = chain(conv(1), max_filter(2), conv(3, stride=(2, 2, 2)))
    with pytest.raises(NetworkError, match=r"'e3'.*stride 2 along z"):
        fit(net, (4, 4, 4))


@pytest.mark.parametrize("shape", [(0, 1, 1), (1, 1)])
def test_impossible_output_shapes(shape):
    with pytest.raises(ShapeError, match="at least 1"):
        fit(chain(conv(1)), shape)
