"""Buffers by name: the same for all that ask, and of one size."""

import pytest

from znnpy import load_network
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.regions import Name, Use
from znnpy.geometry import fit
from znnpy.plan import choose

OWN, OTHER = Use("sums"), Use("sums")


@pytest.fixture
def build():
    network = load_network({"layers": [{"conv": {"channels": 2, "size": 3}}]})
    geometry = fit(network, (4, 4, 4))
    plan = choose(network, geometry, 1, "direct", lambda shape: {})
    return Build.new(Arena(), Layout(network, geometry, plan, 1, training=True), 0)


@pytest.mark.parametrize("kind", ["scratch", "shared", "kept"])
def test_a_name_has_one_buffer_of_one_size(build, kind):
    ask, name = getattr(build, kind), Name(OWN, "conv1", (3,))
    found = ask(name, 16)
    assert ask(Name(OWN, "conv1", (3,)), 16) is found
    with pytest.raises(
        ValueError, match=r"sums of conv1: asked for as 32 floats .* and before as 16"
    ):
        ask(name, 32)


def test_a_buffer_is_of_one_kind(build):
    build.scratch(Name(OWN, "conv1"), 16)
    for other in (build.shared, build.kept):
        with pytest.raises(ValueError, match="sums of conv1"):
            other(Name(OWN, "conv1"), 16)


def test_names_differ_by_use_owner_and_which(build):
    names = [Name(OWN, "conv1"), Name(OTHER, "conv1"), Name(OWN, "conv2"), Name(OWN, "conv1", (1,))]
    buffers = [build.scratch(name, 16) for name in names]
    assert len({buffer.address for buffer in buffers}) == len({*buffers}) == 4
