"""Shapes against counting by hand and against NumPy's own valid sliding windows."""

import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from unets import unet

from znnpy.errors import NetworkError, ShapeError
from znnpy.geometry import fit, fit_input, largest, smallest
from znnpy.geometry.axis_sizes import Line
from znnpy.geometry.finest_outputs import finest
from znnpy.geometry.receptive_field import lattice_of
from znnpy.geometry.shape_inference import _inputs as inputs_search
from znnpy.geometry.shape_inference import _outputs as outputs_search
from znnpy.geometry.size_suggestions import Search
from znnpy.layers.sizes import Spreads
from znnpy.layers.types import BARE
from znnpy.network import parameter_shapes
from znnpy.network.types import Edge, Network, Node
from znnpy.reference import forward


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


def branches(*steps):
    """Pools beside each other, each grown again by its step and added up."""
    nodes = [Node("input", "input", 1)]
    edges = []
    for step in steps:
        size = {"size": (step,) * 3, "stride": (step,) * 3}
        nodes.append(Node(f"pooled{step}", "sum", 1))
        edges.append(Edge(f"pool{step}", "max_pool", "input", f"pooled{step}", **size))
        edges.append(Edge(f"grow{step}", "conv_transpose", f"pooled{step}", "out", **size))
    return Network((*nodes, Node("out", "sum", 1)), tuple(edges))


def test_benchmark_net_has_the_papers_field_of_view():
    net = chain(conv(1), max_filter(2), conv(3), max_filter(4), conv(5), conv(6))
    geometry = fit(net, (12, 12, 12))
    assert geometry.dilations["e6"] == (4, 4, 4)
    # 1 + 4*2 + 4*2 + 2 + 2*2 + 1 + 2, counted by hand
    assert geometry.fields_of_view["input"] == (26, 26, 26)
    assert geometry.input_shapes["input"] == (37, 37, 37)
    assert geometry.output_offset("input") == (12, 12, 12)


def test_sparsity_multiplies_axis_by_axis():
    def maximum(index, *size):
        return Edge(
            f"e{index}", "max_filter", f"n{index - 1}", f"n{index}", size=size, sparsens=size
        )

    sparse = {"sparsity": (5, 3, 1)}
    net = chain(conv(1), maximum(2, 1, 2, 3), maximum(3, 4, 1, 2), conv(4, 2, **sparse))
    geometry = fit(net, 1)
    assert geometry.nodes["n3"].sparsity == (4, 2, 6)
    assert geometry.dilations["e4"] == (20, 6, 6)
    # 3 taps, then windows of 1, 2, 3 and of 4, 1, 2 that lie 1, 2, 3 apart, then 2 taps
    assert geometry.fields_of_view["input"] == (3 + 0 + 3 + 20, 3 + 1 + 0 + 6, 3 + 2 + 3 + 6)


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


@pytest.mark.parametrize(
    ("first", "second", "offset", "words"),
    [
        ((1, 1, 5), (1, 5, 1), None, "a crop edge with offset 0 x 2 x 0 before 'first' and one with "
         "offset 0 x 0 x 2 before 'second' fit"),
        ((1, 5, 1), (1, 1, 5), None, "a crop edge with offset 0 x 0 x 2 before 'first' and one with "
         "offset 0 x 2 x 0 before 'second' fit"),
        ((1, 1, 5), (3, 3, 5), None, "a crop edge with offset 1 x 1 x 0 before 'first' fits"),
        ((3, 3, 5), (1, 1, 5), None, "a crop edge with offset 1 x 1 x 0 before 'second' fits"),
        (None, (1, 3, 7), (0, 3, 1), "offset 0 x 1 x 3 for 'first' fits"),
        (None, (1, 3, 7), (0, 3, 5), "offset 0 x 1 x 3 for 'first' fits"),
        (None, (1, 1, 5), (2, 0, 0), "offset 0 x 0 x 2 for 'first' fits"),
    ],
)  # fmt: skip
def test_the_crops_that_are_suggested_mend_the_network(first, second, offset, words):
    nodes = (Node("in", "input", 1), Node("out", "sum", 1))
    one = (
        Edge("first", "crop", "in", "out", offset=offset)
        if first is None
        else Edge("first", "conv", "in", "out", size=first)
    )
    edges = (one, Edge("second", "conv", "in", "out", size=second))
    with pytest.raises(NetworkError, match=f"{words}$"):
        fit(Network(nodes, edges), (1, 8, 8))
    mended = list(edges)
    for crop, name in re.findall(r"offset (\S+ x \S+ x \S+) (?:before|for) '(\w+)'", words):
        index = ["first", "second"].index(name)
        sides = tuple(map(int, crop.split(" x ")))
        if offset is not None:
            mended[index] = replace(edges[index], offset=sides)
        else:
            nodes = (nodes[0], Node(f"{name} cut", "sum", 1), *nodes[1:])
            mended.append(Edge(f"crop {name}", "crop", "in", f"{name} cut", offset=sides))
            mended[index] = replace(edges[index], source=f"{name} cut")
    assert fit(Network(nodes, tuple(mended)), (1, 8, 8)).output_shapes == {"out": (1, 8, 8)}


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


def test_a_valid_unet_has_the_published_sizes():
    net = unet(4)
    geometry = fit(net, (28, 44, 44))
    assert geometry.input_shapes["in"] == (116, 132, 132)  # Cicek et al. 2016, figure 2
    assert geometry.nodes["down3"].shape == (7, 9, 9)
    assert geometry.nodes["up2"].shape == (14, 18, 18)
    assert fit_input(net, (116, 132, 132)) == geometry
    assert [geometry.nodes[f"pool{n}"].stride[0] for n in range(3)] == [2, 4, 8]
    assert geometry.output_stride("out") == (1, 1, 1)
    assert geometry.periods == {"in": (8, 8, 8)}
    assert geometry.output_offset("in") == (44, 44, 44)
    assert smallest(net) == (4, 4, 4)
    assert smallest(net, (4, 5, 13)) == (4, 12, 20)
    assert largest(net, {"out": (4, 11, 13)}) == {"out": (4, 4, 12)}
    assert largest(net, {"out": (3, 12, 12)}) == {}


def test_a_padded_unet_keeps_its_size():
    geometry = fit(unet(4, padding="same"), (16, 24, 32))
    assert geometry.input_shapes["in"] == (16, 24, 32)
    assert geometry.output_offset("in") == (0, 0, 0)
    assert fit_input(unet(4, padding=((1, 1),) * 3), (16, 24, 32)) == geometry


@pytest.mark.parametrize(
    ("padding", "how", "shape", "words"),
    [
        (BARE, fit, 27, "makes 30 or 32 voxels along z, never 31; the nearest possible sizes are "
         "20 x 20 x 20 and 28 x 28 x 28"),
        (BARE, fit, (28, 45, 44), "the nearest possible sizes are 28 x 44 x 44 and 28 x 52 x 44"),
        (BARE, fit, 1, "the nearest possible size is 4 x 4 x 4"),
        (BARE, fit_input, (116, 130, 132), "'e_pool1' leaves 1 of 59 voxels along y over; the nearest "
         "possible sizes are 116 x 124 x 132 and 116 x 132 x 132"),
        (BARE, fit_input, 10, "'e_skip0' takes at least 81 voxels along z, there are 6; the nearest "
         "possible size is 92 x 92 x 92"),
        ("same", fit, 30, "the nearest possible sizes are 24 x 24 x 24 and 32 x 32 x 32"),
        ("same", fit_input, (8, 4, 8), "the nearest possible size is 8 x 8 x 8"),
    ],
)  # fmt: skip
def test_sizes_that_a_unet_cannot_have_come_with_the_nearest(padding, how, shape, words):
    with pytest.raises(ShapeError, match=f"does not fit this network: .*{words}"):
        how(unet(4, padding=padding), shape)


@pytest.mark.parametrize("padding", [BARE, "same"])
@pytest.mark.parametrize("how", [fit, fit_input])
def test_trying_grows_with_the_levels_and_not_with_the_steps_between_sizes(
    how, padding, monkeypatch
):
    tried = []
    at = Search.at
    monkeypatch.setattr(Search, "at", lambda self, by: tried.append(by) or at(self, by))
    with pytest.raises(ShapeError, match="nearest possible"):
        how(unet(12, padding=padding), 2**14 + 1)
    assert len(tried) < 3 * 12 * 12


def test_networks_whose_voxels_lie_very_far_apart_are_refused():
    def pooled(times):
        return chain(*(conv(n + 1, 2, stride=(2, 1, 1)) for n in range(times)))

    assert fit(pooled(13), 1).periods == {"input": (8192, 1, 1)}
    with pytest.raises(NetworkError, match="'n14': its voxels lie 16384 x 1 x 1 voxels apart"):
        fit(pooled(14), 1)
    with pytest.raises(NetworkError, match="'e3': the taps of its filter lie 10000 x 10000"):
        fit(chain(conv(1), max_filter(2, 100), conv(3, sparsity=(100,) * 3)), 1)
    grown = chain(
        *(
            Edge(f"e{n + 1}", "upsample", f"n{n}" if n else "input", f"n{n + 1}", factor=(2,) * 3)
            for n in range(99)
        )
    )
    with pytest.raises(NetworkError, match="'n14': its voxels lie 1/16384 x 1/16384"):
        fit(grown, 1)
    sparse = chain(conv(1), max_filter(2, 100), max_filter(3, 100))
    with pytest.raises(NetworkError, match="'n3': the voxels that what follows sees lie 10000"):
        fit(sparse, 1)


def test_steps_beside_each_other_agree_every_common_multiple():
    assert fit(branches(4, 6), 12).periods == {"input": (12, 12, 12)}
    with pytest.raises(ShapeError, match="nearest possible size is 12 x 12 x 12"):
        fit(branches(4, 6), 4)
    with pytest.raises(NetworkError, match="agree every 10010 x 10010 x 10010 input voxels"):
        fit(branches(10, 11, 13, 7), 1)


@pytest.mark.parametrize(
    ("margins", "words"),
    [
        ((0, 0, 0), "offset 4 x 4 x 4 for 'e_skip2' fits"),
        ((40, 16, 5), "offset 4 x 4 x 4 for 'e_skip2' fits"),
        ((40, 10, 4), "offset 16 x 16 x 16 for 'e_skip1' fits"),
        ((41, 16, 4), "offset 40 x 40 x 40 for 'e_skip0' fits"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [12, 13, 1])
def test_skips_that_never_fit_say_what_would(margins, words, size):
    with pytest.raises(NetworkError, match=words):
        fit(unet(4, margins=margins), size)


def test_a_stride_may_leave_padding_over():
    edge = Edge(
        "e1", "conv", "input", "n1", size=(3, 3, 3), stride=(2, 2, 2), padding=((1, 1),) * 3
    )
    assert fit(chain(edge), 4).input_shapes["input"] == (8, 8, 8)  # of 7 and 8
    assert fit_input(chain(edge), 8).output_shapes["n1"] == (
        4,
        4,
        4,
    )  # one of the padding is not seen
    with pytest.raises(ShapeError, match="leaves 1 of 7 voxels along y over"):
        fit_input(chain(replace(edge, padding=((1, 0),) * 3)), (8, 7, 8))
    sparse = replace(edge, size=(1, 1, 1), padding=BARE)
    assert fit_input(chain(sparse), 8).output_shapes["n1"] == (
        4,
        4,
        4,
    )  # nor what lies between windows


def test_a_padded_stride_and_growth_agree_on_the_size_that_a_skip_has():
    nodes = (
        Node("in", "input", 1),
        Node("low", "transfer", 1),
        Node("high", "transfer", 1),
        Node("out", "sum", 1),
    )
    edges = (
        Edge("down", "conv", "in", "low", size=(3,) * 3, stride=(2,) * 3, padding=((1, 1),) * 3),
        Edge("up", "upsample", "low", "high", factor=(2,) * 3),
        Edge("stay", "identity", "high", "out"),
        Edge("skip", "identity", "in", "out"),
    )
    geometry = fit(Network(nodes, edges), (8, 10, 12))
    assert geometry.input_shapes["in"] == (8, 10, 12)
    assert geometry.nodes["low"].shape == (4, 5, 6)
    with pytest.raises(ShapeError, match=r"'up' makes 8 or 10 voxels along z, never 9; .* are 8 x"):
        fit(Network(nodes, edges), 9)


def test_outputs_finer_than_the_input_are_refused_and_hidden_ones_may_be():
    up, down = (
        Edge("up", "upsample", "input", "fine", factor=(1, 3, 3)),
        Edge("down", "avg_pool", "fine", "out", size=(1, 2, 3), stride=(1, 2, 3)),
    )
    with pytest.raises(
        NetworkError, match=r"'fine': its voxels lie 1 x 1/3 x 1/3 input voxels apart"
    ):
        fit(chain(up), 6)
    with pytest.raises(NetworkError, match=r"'out': its voxels lie 1 x 2/3 x 1 input"):
        fit(chain(up, down), 6)
    whole = replace(down, size=(1, 6, 3), stride=(1, 6, 3))
    geometry = fit(chain(up, whole), 2)
    assert geometry.nodes["fine"].stride == (1, Fraction(1, 3), Fraction(1, 3))
    assert geometry.output_stride("out") == (1, 2, 1)
    assert geometry.input_shapes["input"] == (2, 4, 2)


def test_images_that_reflect_are_larger_than_their_padding():
    edge = Edge("e1", "conv", "input", "n1", size=(5,) * 3, padding=((2, 2),) * 3, border="reflect")
    with pytest.raises(ShapeError, match=r"reflect padding is smaller .* size is 3 x 3 x 3"):
        fit(chain(edge), 2)
    with pytest.raises(ShapeError, match="takes at least 3 voxels along z, there are 2"):
        fit_input(chain(edge), 2)
    assert fit(chain(edge), 3).input_shapes["input"] == (3, 3, 3)
    assert fit(chain(replace(edge, border="zeros")), 1).input_shapes["input"] == (1, 1, 1)


@pytest.mark.parametrize(
    ("kind", "count"), [("max_pool", True), ("avg_pool", False), ("avg_pool", True)]
)
def test_windows_of_padding_alone_are_refused_where_they_have_no_value(kind, count):
    """Taps at -1 and 3 of an image of 3 voxels: no maximum, and no mean where padding does not count."""
    edge = Edge(
        "e1", kind, "input", "n1", size=(1, 1, 2), sparsity=(1, 1, 4), padding=((0, 0), (0, 0), (1, 1)),
        count_padding=count,
    )  # fmt: skip
    assert fit_input(chain(edge), (1, 1, 4)).output_shapes["n1"] == (1, 1, 2)
    if kind == "avg_pool" and count:
        assert fit_input(chain(edge), (1, 1, 3)).output_shapes["n1"] == (1, 1, 1)
    else:
        with pytest.raises(ShapeError, match="'e1' takes at least 4 voxels along x, there are 3"):
            fit_input(chain(edge), (1, 1, 3))


@pytest.mark.parametrize("size", [1, 2])
def test_windows_that_meet_any_small_image_are_taken(size):
    """Taps at -2, 0 and 2, and at -1, 1 and 3: each window of an image of 1 or 2 voxels has one in it."""
    edge = Edge(
        "e1", "max_pool", "input", "n1", size=(1, 1, 3), sparsity=(1, 1, 2), padding=((0, 0), (0, 0), (2, 2))
    )  # fmt: skip
    assert fit_input(chain(edge), (1, 1, size)).output_shapes["n1"] == (1, 1, size)


def test_filters_that_reach_far_say_what_they_take():
    """Further than any search for sizes goes."""
    net = chain(conv(1, 10, sparsity=(8192,) * 3))
    with pytest.raises(
        ShapeError, match="takes at least 73729 voxels along z, there are 8; the nearest"
    ):
        fit_input(net, 8)


def test_growth_that_never_meets_what_it_is_added_to():
    """Twice as many voxels, and one less of as many, are never equally many."""
    nodes = (Node("in", "input", 1), Node("a", "sum", 1), Node("out", "sum", 1))
    edges = (
        Edge("up", "upsample", "in", "a", factor=(2, 2, 2)),
        Edge("stay", "identity", "a", "out"),
        Edge("conv", "conv_transpose", "in", "out", size=(1, 1, 1), stride=(2, 2, 2)),
        Edge("pool", "max_pool", "out", "end", size=(2, 2, 2), stride=(2, 2, 2)),
    )
    with pytest.raises(
        NetworkError, match=r"makes .* voxels along z, never .*; no other size is possible either"
    ):
        fit(Network((*nodes, Node("end", "sum", 1)), edges), 3)


def test_outputs_of_larger_stride_get_what_follows():
    nodes = (
        Node("in", "input", 1),
        Node("low", "transfer", 1),
        Node("fine", "sum", 1),
        Node("coarse", "sum", 1),
    )
    edges = (
        Edge("down", "max_pool", "in", "low", size=(2,) * 3, stride=(2,) * 3),
        Edge("up", "upsample", "low", "fine", factor=(2,) * 3),
        Edge("side", "identity", "low", "coarse"),
    )
    net = Network(nodes, edges)
    assert fit(net, 8).output_shapes == {"fine": (8, 8, 8), "coarse": (4, 4, 4)}
    assert fit(net, {"fine": 8, "coarse": 4}) == fit(net, 8)
    with pytest.raises(NetworkError, match=r"'low': edge 'up' needs 4 x .* 'side' needs 5 x"):
        fit(net, {"fine": 8, "coarse": 5})


def test_outputs_of_unlike_strides_have_no_shape_in_common():
    nodes = (Node("in", "input", 1), Node("a", "sum", 1), Node("b", "sum", 1))
    wide, high = (1, 1, 2), (1, 2, 1)
    edges = (
        Edge("e", "max_pool", "in", "a", size=wide, stride=wide),
        Edge("f", "max_pool", "in", "b", size=high, stride=high),
    )
    net = Network(nodes, edges)
    words = "'a' and 'b': their voxels lie 1 x 1 x 2 and 1 x 2 x 1 input voxels apart"
    for fits in (
        lambda: fit(net, 4),
        lambda: smallest(net),
        lambda: largest(net, {"a": (4,) * 3, "b": (4,) * 3}),
    ):
        with pytest.raises(NetworkError, match=words):
            fits()
    shapes = {"a": (4, 4, 2), "b": (4, 2, 4)}
    assert fit(net, shapes).input_shapes == {"in": (4, 4, 4)}


@pytest.mark.slow
def test_what_one_voxel_sees_is_what_changes_it():
    """Along x: every voxel of the input is raised by much; filters are positive, functions linear."""
    compared = 0
    for seed in range(20):
        net = line_network(np.random.default_rng(seed))
        try:
            geometry = fit(net, smallest(net, (1, 1, 40)))
        except NetworkError:  # what grew never meets the windows after it
            continue
        compared += 1
        parameters = {name: np.ones(s) for name, s in parameter_shapes(net).items()}
        count = geometry.input_shapes["input"][2]
        images = np.zeros((count + 1, 1, 1, 1, count))
        images[np.arange(count), :, 0, 0, np.arange(count)] = 1e6
        output = net.outputs[0].name
        values = forward(net, geometry, parameters, {"input": images})[output][:, 0, 0, 0]
        sees = values[:-1] != values[-1]
        spans = [
            np.flatnonzero(column).max() - np.flatnonzero(column).min() + 1 for column in sees.T
        ]
        assert max(spans) == geometry.fields_of_view["input"][2], seed
        period, step = geometry.periods["input"][2], geometry.output_stride(output)[2]
        assert np.array_equal(sees[period:, period // step :], sees[:-period, : -(period // step)])
    assert compared > 10


def line_network(rng):
    """A chain that shrinks and grows along x, as fine as its input at most; no padding."""
    edges, stride = [], 1
    for index in range(1, 7):
        kind = str(
            rng.choice(["conv", "max_pool", "avg_pool", "conv_transpose", "upsample", "crop"])
        )
        grows = kind in ("conv_transpose", "upsample")
        step = int(rng.choice([n for n in (1, 2, 3, 4) if not grows or stride % n == 0]))
        stride = stride // step if grows else stride if kind == "crop" else stride * step
        size = int(rng.integers(1, 5))
        more = {"size": (1, 1, size), "stride": (1, 1, step)}
        if kind == "upsample":
            more = {"factor": (1, 1, step)}
        if kind == "conv_transpose":  # all that the filters' ends make alone is cut
            size = max(size, step)
            side = (size - step, size - step) if size > step else (0, 0)
            more = {"size": (1, 1, size), "stride": (1, 1, step), "padding": (*BARE[:2], side)}
        if kind == "crop":
            more = {"offset": (0, 0, int(rng.integers(3)))}
        before = "input" if index == 1 else f"n{index - 1}"
        edges.append(Edge(f"e{index}", kind, before, f"n{index}", **more))
    return chain(*edges)


@pytest.mark.parametrize(("size", "padding"), [(3, (0, 1)), (3, (1, 1)), (4, (1, 1)), (5, (2, 2))])
def test_padded_strides_halve_even_sizes(size, padding):
    """Three in a row; of 8 .. 15 for 1, 8 is a whole period."""
    edges = [conv(k, size, stride=(2, 2, 2), padding=(padding,) * 3) for k in (1, 2, 3)]
    geometry = fit(chain(*edges), 4)
    assert geometry.input_shapes["input"] == (32, 32, 32)
    assert [geometry.nodes[f"n{k}"].shape[0] for k in (1, 2, 3)] == [16, 8, 4]


NETS = [
    unet(3),
    unet(3, padding="same"),
    unet(3, margins=(9, 4)),  # never
    branches(4, 6),
    chain(*(conv(k, 3, stride=(s, s, s), padding=((1, 1),) * 3) for k, s in ((1, 2), (2, 1), (3, 3)))),
    chain(conv(1, 2, stride=(4, 4, 4)), conv(2, 3, padding=((1, 1),) * 3, border="reflect")),
    *(line_network(np.random.default_rng(seed)) for seed in range(6)),
]  # fmt: skip


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("net", NETS, ids=range(len(NETS)))
def test_nearest_sizes_are_those_found_by_trying_all(net, backwards):
    line = Line(net, lattice_of(net), 2)
    names = [node.name for node in (net.outputs if backwards else net.inputs)]
    make, far = (outputs_search, line.output_reach) if backwards else (inputs_search, line.reach)
    search = make(line, dict.fromkeys(names, (1, 1, 1)))
    possible = [by for by in range(30 + far) if search.works(by)]
    for size in range(1, 30):
        found = make(line, dict.fromkeys(names, (size,) * 3)).nearest()
        below = max((by + 1 for by in possible if by < size), default=None)
        above = min((by + 1 for by in possible if by >= size - 1), default=None)
        assert found == (below, above)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("span", [1, 2, 3, 5])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_spreads_see_what_windows_see_the_other_way(stride, span, before):
    """A voxel of the target sees those of the source that go to it: by trying all."""
    spreads = Spreads(span, stride, before, 0)
    for low in range(6, 12):
        for high in range(low, 14):
            goes = [
                i
                for i in range(-20, 40)
                for to in range(i * stride - before, i * stride - before + span)
                if low <= to <= high
            ]
            if goes:
                first, last = spreads.seen(low, high)
                assert (min(goes), max(goes)) == (first, last)


def test_the_finest_outputs_and_what_they_need_are_left():
    step = {"size": (2,) * 3, "stride": (2,) * 3}
    nodes = [Node("in", "input", 1), *(Node(name, "sum", 1) for name in ("low", "coarse", "fine"))]
    edges = (
        Edge("down", "max_pool", "in", "low", **step),
        Edge("side", "identity", "low", "coarse"),
        Edge("stay", "identity", "in", "fine"),
    )
    net = Network(tuple(nodes), edges)
    found = finest(net)
    assert [node.name for node in found.nodes] == ["in", "fine"]
    assert [edge.name for edge in found.edges] == ["stay"]
    assert finest(found) is found
