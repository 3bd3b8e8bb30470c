"""Names, shapes and start values."""

from __future__ import annotations

from contextlib import nullcontext
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from znnpy.errors import NetworkError
from znnpy.network import initial_parameters, learned, load_network, parameter_shapes, parameters
from znnpy.network.parameters import generator, repeated
from znnpy.network.types import Edge, Init, Network, Node


def chain(*convs: dict[str, Any]) -> Network:
    return load_network({"input": 3, "layers": [{"conv": {"size": 3, **c}} for c in convs]})


def bank(init: Init, images: tuple[int, int] = (40, 50)) -> NDArray[np.float32]:
    """Start values of one filter bank (out 50, in 40, 2 x 3 x 4)."""
    nodes = (Node("a", "input", images[0]), Node("b", "sum", images[1]))
    edge = Edge("f", "conv", "a", "b", size=(2, 3, 4), init=init)
    return initial_parameters(Network(nodes, (edge,)), seed=1)["f"]


def test_names_and_shapes() -> None:
    net = chain({"channels": 4, "size": [1, 2, 3]}, {"channels": 5, "bias": False}, {"channels": 2})
    assert parameter_shapes(net) == {
        "conv1": (4, 3, 1, 2, 3),
        "conv2": (5, 4, 3, 3, 3),
        "conv3": (2, 5, 3, 3, 3),
        "layer1": (4,),
        "output": (2,),
    }
    values = initial_parameters(net, 0)
    assert {name: array.shape for name, array in values.items()} == parameter_shapes(net)
    for array in values.values():
        assert array.dtype == np.float32
        assert array.flags.c_contiguous
        assert array.flags.writeable


def test_edges_that_learn_nothing_have_no_parameters() -> None:
    net = load_network({"layers": [{"max_filter": 2}, {"crop": 1}, {"dropout": 0.5}]})
    assert initial_parameters(net, 0) == {}


@pytest.mark.parametrize(
    ("kind", "drawn"),
    [
        ("he", lambda rng, shape: rng.normal(0.0, (2 / (5 * 27)) ** 0.5, shape)),
        ("xavier", lambda rng, shape: rng.uniform(-((6 / 351) ** 0.5), (6 / 351) ** 0.5, shape)),
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_numbers_are_those_of_one_call_whoever_draws_them(
    monkeypatch: pytest.MonkeyPatch, kind: Any, drawn: Any, threads: int
) -> None:
    monkeypatch.setattr(parameters, "MANY", 1)
    monkeypatch.setattr(parameters, "AT_ONCE", 100)
    layers = [{"conv": {"channels": channels, "size": 3, "init": kind}} for channels in (5, 8, 5)]
    values = initial_parameters(load_network({"layers": layers}), 3, threads)
    assert list(values) == [*parameter_shapes(load_network({"layers": layers}))]
    wanted = drawn(generator(3, "conv2"), (8, 5, 3, 3, 3)).astype(np.float32)
    np.testing.assert_array_equal(values["conv2"], wanted)


def test_the_largest_are_drawn_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no thread has one of them left at the end."""
    sizes, draw = list[int](), parameters._draw

    def noted(init: Init, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
        sizes.append(prod(shape))
        return draw(init, shape, rng)

    monkeypatch.setattr(parameters, "_draw", noted)
    monkeypatch.setattr(parameters, "MANY", 1)
    pool = SimpleNamespace(map=map)
    monkeypatch.setattr(parameters, "ThreadPoolExecutor", lambda threads: nullcontext(pool))
    layers = [{"conv": {"channels": channels, "size": 3}} for channels in (2, 7, 5)]
    initial_parameters(load_network({"layers": layers}), 3, 2)
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("init", "mean", "std"),
    [
        (Init("he"), 0.0, (2 / (40 * 24)) ** 0.5),
        (Init("xavier"), 0.0, (2 / (90 * 24)) ** 0.5),
        (Init("uniform", low=-1.0, high=3.0), 1.0, 4 / 12**0.5),
        (Init("normal", mean=5.0, std=2.0), 5.0, 2.0),
    ],
)
def test_distributions(init: Init, mean: float, std: float) -> None:
    values = bank(init)
    assert abs(values.mean() - mean) < 4 * std / values.size**0.5
    assert values.std() == pytest.approx(std, rel=0.02)


def test_bounds_and_constants() -> None:
    bound = (6 / (90 * 24)) ** 0.5
    assert 0.99 * bound < np.abs(bank(Init("xavier"))).max() <= np.float32(bound)
    assert set(np.unique(bank(Init("constant", value=0.25)))) == {0.25}


def test_the_seed_decides() -> None:
    net = chain({"channels": 4})
    first, again, other = (initial_parameters(net, seed)["conv1"] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_another_layer_leaves_the_others_as_they_were() -> None:
    short = initial_parameters(chain({"channels": 4}, {"channels": 4}), 7)
    long = initial_parameters(chain({"channels": 4}, {"channels": 4}, {"channels": 4}), 7)
    for name in ("conv1", "conv2"):
        assert np.array_equal(short[name], long[name])
    assert not np.array_equal(long["conv2"], long["conv3"])


def test_start_values_stay_the_same_over_versions() -> None:
    draw = generator(0, "conv1").normal(size=3)
    assert draw == pytest.approx(PINNED, abs=1e-12)


PINNED = [2.008660967040023, -0.5752939413368399, -0.44006663630960574]


def test_what_normalised_nodes_keep() -> None:
    group = {"kind": "group", "groups": 2, "affine": False}
    net = chain(
        {"channels": 4, "norm": "batch"},
        {"channels": 2, "norm": group, "bias": True},
        {"channels": 2, "norm": "instance"},
    )
    beside = {name: shape for name, shape in parameter_shapes(net).items() if len(shape) == 1}
    assert beside == {
        "layer2": (2,),
        "layer1.scale": (4,),
        "layer1.shift": (4,),
        "layer1.running_mean": (4,),
        "layer1.running_variance": (4,),
        "output.scale": (2,),
        "output.shift": (2,),
    }
    moving = {"layer2", "layer1.scale", "layer1.shift", "output.scale", "output.shift"}
    assert set(learned(net)) == {"conv1", "conv2", "conv3"} | moving
    start = initial_parameters(net, 0)
    for name in beside:
        one = name.endswith((".scale", ".running_variance"))
        np.testing.assert_array_equal(start[name], np.float32(one))


def test_names_of_what_nodes_keep_are_taken() -> None:
    section = {
        "nodes": {
            "a": {"kind": "input", "channels": 1},
            "b": {"kind": "transfer", "channels": 1, "norm": "batch"},
            "c": {"kind": "sum", "channels": 1},
        },
        "edges": {
            "b.scale": {"kind": "conv", "from": "a", "to": "b", "size": 1},
            "bc": {"kind": "crop", "from": "b", "to": "c", "offset": 0},
        },
    }
    with pytest.raises(NetworkError, match=r"'b\.scale': the name is taken; .* node 'b' keeps"):
        load_network(section)


@pytest.mark.parametrize(
    ("groups", "words"), [(3, "3 groups .* 10 channels; 1 or 2"), (8, "5 or 10")]
)
def test_groups_must_divide_the_images(groups: int, words: str) -> None:
    with pytest.raises(NetworkError, match=f"node 'output': norm: .*{words} would"):
        chain({"channels": 10, "norm": {"kind": "group", "groups": groups}})


def test_repeated_filters_have_the_means_of_their_blocks() -> None:
    filters = np.arange(2 * 4 * 1 * 6, dtype=np.float32).reshape(1, 2, 4, 1, 6) ** 2
    found = repeated(filters, (2, 1, 3))
    for image, z, x in np.ndindex(2, 2, 2):
        block = (0, image, slice(2 * z, 2 * z + 2), 0, slice(3 * x, 3 * x + 3))
        np.testing.assert_allclose(found[block], filters[block].mean(dtype=np.float64), rtol=1e-6)
    assert np.array_equal(repeated(found, (2, 1, 3)), found)


def test_standardised_filters_of_one_weight_are_refused_group_by_group() -> None:
    wide = {"channels": 4, "size": 1, "weight_standardization": True}
    layers = [{"conv": {"channels": 4, "size": 1}}, {"conv": {**wide, "groups": 2}}]
    assert load_network({"layers": layers}).edges[1].weight_standardization
    layers[1] = {"conv": {**wide, "groups": 4}}
    with pytest.raises(NetworkError, match="single weight"):
        load_network({"layers": layers})
