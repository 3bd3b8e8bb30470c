"""Work, critical path and waits by level, and what advice makes of them."""

import pytest

from znnpy import load_network
from znnpy.profile.advice import advise
from znnpy.profile.summary import levels

UNET = load_network({"unet": {"widths": [2, 2, 2], "down": [[1, 2, 2], 2], "convs": 1}})
CHAIN = load_network({"layers": [{"conv": {"channels": 2, "size": 3}}, {"max_filter": 2}]})


def entry(layer, seconds):
    return {"name": f"{layer} products", "layer": layer, "seconds": seconds}


def figures():
    names = [entry("down0.conv1", 6.0), entry("up0.grow", 2.0), entry("down1.layer1", 1.0)]
    names += [entry("down2.pool", 0.25), entry("down2.conv1", 0.75), entry("all layers", 9.0)]
    path = [entry("down0.conv1", 0.5), entry("down2.conv1", 0.5)]
    waited = {
        "down2.conv1 products": 3.0,
        "up0.grow products": 1.0,
        "the release of an update": 9.0,
    }
    return levels(UNET, names, path, waited)


def test_what_lies_equally_far_apart_is_a_level():
    fine, middle, coarse = figures()
    assert [level["stride"] for level in (fine, middle, coarse)] == [
        "1 x 1 x 1",
        "1 x 2 x 2",
        "2 x 4 x 4",
    ]
    assert (fine["first"], fine["last"]) == ("down0.layer1", "output")
    assert coarse["first"].startswith("down2.")
    assert coarse["last"] == "down2.layer1"
    assert [level["work"] for level in (fine, middle, coarse)] == [8.0, 1.0, 1.0]
    assert [level["waited_for"] for level in (fine, middle, coarse)] == [1.0, 0.0, 3.0]
    assert coarse["width"] == pytest.approx(2.0)


def test_a_network_of_one_level_has_none():
    assert levels(CHAIN, [entry("conv1", 1.0)], [], {}) == []


def test_advice_names_the_narrowest_level():
    run = {
        "threads": 2, "work": 10.0, "span": 1.0, "disturbance": 1.0, "names": [],
        "losses": {"tasks": 1.0, "dispatch": 0.0, "stealing": 0.0}, "levels": figures(),
        "critical_path": [], "sizes": {"small": 0.0, "large": 0.0, "median": 1e-4},
    }  # fmt: skip
    (said,) = [s for s in advise(run, {"cores": 2, "sgemm_gflops": 50.0}) if "narrowest" in s]
    assert "2 x 4 x 4 input voxels apart: 10% of the work, but 50% of the critical path" in said
    assert "75% of the waits; T1 / Tinf is 2.0 there" in said
