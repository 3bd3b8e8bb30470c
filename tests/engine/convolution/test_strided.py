"""Strided convolutions: every pass beside float64, the same bits for any number of threads."""

import numpy as np
import pytest
from against_reference import check_network
from odd_networks import network

FUNCTIONS = ("relu", "leaky_relu", "tanh", "linear")


def drawn(rng):
    """Three convolutions in a row; those that bring gradients back have strides and dilations."""
    images = [int(n) for n in rng.choice([1, 2, 5, 16, 17, 33], 4)]
    nodes = [("input", "input", images[0])]
    edges = []
    for index, count in enumerate(images[1:]):
        function = str(rng.choice(FUNCTIONS))
        nodes.append((f"n{index}", "transfer", count, {"function": function, "slope": 0.1}))
        size, stride, sparsity = (
            tuple(int(n) for n in rng.integers(1, top, 3)) for top in (5, 4, 3)
        )
        numbers = {"size": size, "stride": stride, "sparsity": sparsity}
        edges.append(("conv", nodes[index][0], f"n{index}", numbers))
    return network(nodes, edges), tuple(int(n) for n in rng.integers(1, 4, 3))


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(12))
def test_all_passes_of_drawn_layers(seed):
    check_network(*drawn(np.random.default_rng(seed)), conv="direct", threads=1)


@pytest.mark.slow
def test_same_bits_for_any_number_of_threads():
    layers = [
        ("conv", "input", "a", {"size": (3, 3, 3)}),
        ("conv", "a", "b", {"size": (3, 3, 3), "stride": (2, 2, 2)}),
        ("conv", "b", "out", {"size": (2, 2, 2), "stride": (1, 2, 2)}),
    ]
    nodes = [("input", "input", 1)]
    nodes += [(name, "transfer", 18, {"function": "relu"}) for name in ("a", "b", "out")]
    bits = [
        check_network(network(nodes, layers), (9, 5, 6), conv="direct", threads=n)
        for n in (1, 3, 8)
    ]
    assert all(other == bits[0] for other in bits[1:])
