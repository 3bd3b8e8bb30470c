"""Transposed convolutions: every pass beside float64, the same bits for any number of threads."""

import numpy as np
import pytest
from against_reference import check_network
from odd_networks import network

SOFTMAX = {"function": "softmax"}
FUNCTIONS = ("relu", "leaky_relu", "tanh", "linear")


def drawn(rng):
    """A strided convolution, and two transposed ones by which images grow again; and an output shape."""
    images = [int(n) for n in rng.choice([1, 2, 5, 16, 17, 33], 4)]
    names, nodes, edges = ["input", "a", "b", "out"], [], []
    for name, count in zip(names, images, strict=True):
        function = str(rng.choice(FUNCTIONS))
        more = {"function": function, "slope": 0.1, "bias": bool(rng.random() < 0.8)}
        nodes.append((name, "transfer" if nodes else "input", count, more))
    shape, stride = tuple(int(n) for n in rng.integers(1, 4, 3)), (1, 1, 1)
    for ends in (("a", "b"), ("b", "out")):
        numbers = transposed(rng)
        shape = grown(shape, numbers)
        stride = tuple(a * b for a, b in zip(stride, numbers["stride"], strict=True))
        edges.append(("conv_transpose", *ends, numbers))
    first = ("conv", "input", "a", {"size": (1, 2, 1), "stride": stride})
    return network(nodes, [first, *edges]), shape


def transposed(rng):
    """Filters, stride, dilation, padding of each side, output padding."""
    size, stride, sparsity = (tuple(int(n) for n in rng.integers(1, top, 3)) for top in (5, 4, 3))
    padding = tuple(
        (int(rng.integers(0, 1 + min(2, far))), int(rng.integers(0, 1 + min(2, far))))
        for far in (((n - 1) * d) // 2 for n, d in zip(size, sparsity, strict=True))
    )
    more = tuple(int(rng.integers(0, n)) for n in stride)
    return {
        "size": size, "stride": stride, "sparsity": sparsity, "padding": padding,
        "output_padding": more,
    }  # fmt: skip


def grown(shape, numbers):
    return tuple(
        (n - 1) * s + (k - 1) * d + 1 - before - after + more
        for n, s, k, d, (before, after), more in zip(shape, *numbers_of(numbers), strict=True)
    )


def numbers_of(numbers):
    return (numbers[key] for key in ("stride", "size", "sparsity", "padding", "output_padding"))


@pytest.mark.quick(4)
@pytest.mark.parametrize("seed", range(16))
def test_all_passes_of_drawn_layers(seed):
    check_network(*drawn(np.random.default_rng(seed)), conv="direct", threads=1)


UP = {"size": (2, 2, 2), "stride": (2, 2, 2)}
PADDED = {"size": (4, 3, 2), "stride": (2, 2, 2), "padding": ((1, 1), (1, 0), (0, 0))}


@pytest.mark.parametrize("inputs", [1, 40])
def test_from_an_input(inputs):
    nodes = [("input", "input", inputs), ("a", "transfer", 3), ("out", "transfer", 2)]
    edges = [("conv_transpose", "input", "a", UP), ("conv", "a", "out", UP)]
    check_network(network(nodes, edges), (3, 4, 8))


def test_into_an_output_with_softmax():
    nodes = [("input", "input", 1), ("a", "transfer", 5), ("out", "transfer", 3, SOFTMAX)]
    edges = [("conv", "input", "a", UP), ("conv_transpose", "a", "out", PADDED)]
    check_network(network(nodes, edges), (6, 4, 8), "softmax")


def test_edges_that_converge():
    nodes = [("input", "input", 3), ("a", "transfer", 17), ("out", "transfer", 18)]
    edges = [("conv", "input", "a", UP)]
    edges += [("conv_transpose", "a", "out", numbers) for numbers in (UP, PADDED)]
    check_network(network(nodes, edges), (6, 4, 8))


@pytest.mark.slow
def test_same_bits_for_any_number_of_threads():
    odd = {"size": (3, 3, 3), "stride": (2, 2, 2), "padding": ((1, 1),) * 3}
    layers = [
        ("conv", "input", "a", UP),
        ("conv_transpose", "a", "b", odd | {"output_padding": (1, 1, 1)}),
        ("conv", "b", "out", {"size": (3, 3, 3)}),
    ]
    nodes = [("input", "input", 1)]
    nodes += [(name, "transfer", 18, {"function": "relu"}) for name in ("a", "b", "out")]
    bits = [check_network(network(nodes, layers), (16, 8, 6), threads=n) for n in (1, 3, 8)]
    assert all(other == bits[0] for other in bits[1:])
