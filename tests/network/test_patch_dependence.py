"""What makes values of a network depend on the patch."""

from dataclasses import replace

import pytest

from znnpy.network import load_network
from znnpy.network.patch_dependence import depends_on_patch, patch_dependence
from znnpy.network.types import Network, Norm

CONV = {"conv": {"channels": 2, "size": 3}}
NETWORK = load_network({"input": 1, "layers": [CONV, {"max_pool": 2}, CONV]})


def changed(name: str, **changes: object) -> Network:
    edges = tuple(replace(e, **changes) if e.name == name else e for e in NETWORK.edges)
    return replace(NETWORK, edges=edges)


def normed(kind: str) -> Network:
    nodes = tuple(replace(n, norm=Norm(kind)) if n.kind == "transfer" else n for n in NETWORK.nodes)
    return replace(NETWORK, nodes=nodes)


def test_valid_nets_do_not() -> None:
    assert not depends_on_patch(NETWORK)
    assert not depends_on_patch(normed("batch"))
    assert not depends_on_patch(changed("conv1", padding="same", size=(1, 1, 1)))


@pytest.mark.parametrize("padding", ["same", ((0, 0), (0, 1), (0, 0))])
def test_padded_ones_do(padding: object) -> None:
    assert patch_dependence(changed("conv2", padding=padding)) == "padding (conv2)"


@pytest.mark.parametrize("kind", ["instance", "group", "layer"])
def test_statistics_of_images_do(kind: str) -> None:
    assert patch_dependence(normed(kind)) == f"{kind} norm (layer1, output)"
    both = replace(normed(kind), edges=changed("conv2", padding="same").edges)
    assert patch_dependence(both) == f"padding (conv2), {kind} norm (layer1, output)"
