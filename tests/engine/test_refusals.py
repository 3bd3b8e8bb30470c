"""What a model refuses when it is made, in words that say why; and what it takes for the same."""

import numpy as np
import pytest
from odd_networks import network, size
from small_models import small

from znnpy.engine import Hardware, Model
from znnpy.engine.memory.limits import refuse_above
from znnpy.errors import PlanError, ZnnpyError


def test_auto_runs_directly_what_fft_cannot():
    net = network(
        [("x", "input", 1), ("a", "transfer", 20), ("y", "transfer", 20)],
        [("conv", "x", "a", size(1, 1, 1)), ("conv", "a", "y", size(1, 65, 65))],
    )
    with Model(net, (1, 40, 40), threads=1, conv="auto", training=False) as model:
        assert model.plan_record["e1"]["forward"] == "direct"


@pytest.mark.parametrize(
    "options",
    [
        {"conv": "strassen"},
        {"precision": "float16"},
        {"loss": "softmaks"},
        {"policy": "random walk"},
        {"batch": 0},
        {"batch": True},
        {"threads": -1},
        {"threads": 100_000},
        {"seed": -1},
        {"steal_seed": 2**63},
        {"clip_norm": -1},
        {"clip_norm": float("nan")},
        {"max_memory": 0},
    ],
)
def test_unknown_words_and_impossible_counts_are_refused(options):
    with pytest.raises(ZnnpyError, match=next(iter(options))):
        small(**options)


def test_one_number_is_a_cube():
    with small(3) as one, small(np.int64(3)) as other:
        assert one.output_shape == other.output_shape == (3, 3, 3)
    net = network([("x", "input", 1), ("y", "transfer", 1)], [("conv", "x", "y", size(1, 1, 1))])
    with Model(net, {"y": 2}, threads=1) as model:
        assert model.input_shape == (2, 2, 2)


@pytest.mark.parametrize(
    "shape", [0, 2.5, (3, 3), (3, 3, 2.5), "333", None, True, (3, 3, True), b"abc", 2**21, {3}]
)
def test_shapes_that_are_none_are_refused(shape):
    with pytest.raises(ZnnpyError, match="three sizes"):
        small(shape)


def test_softmax_of_one_image_is_refused():
    net = network([("x", "input", 1), ("y", "transfer", 1)], [("conv", "x", "y", size(1, 1, 1))])
    with pytest.raises(ZnnpyError, match="'y' has 1; binomial_cross_entropy"):
        Model(net, 2, loss="softmax", threads=1)
    Model(net, 2, loss="softmax", threads=1, training=False).close()


@pytest.mark.parametrize("training", [True, False])
def test_shapes_that_no_memory_holds_are_refused_before_planning(training, monkeypatch):
    def planned(*args):
        raise AssertionError("it is planned")

    monkeypatch.setattr("znnpy.engine.construction.planned", planned)
    with pytest.raises(ZnnpyError, match=r"at least [\d.]+ TiB of memory; this machine has"):
        small(20_000, training=training)
    with pytest.raises(ZnnpyError, match=r"at least .* of memory; max_memory is 1.0 MiB"):
        small(64, training=training, max_memory=1 << 20)


@pytest.mark.parametrize(
    ("training", "needs"),
    [(True, "their gradients and states of the optimizer need at least 48.0"), (False, "need at least 16.0")],
)  # fmt: skip
def test_parameters_that_no_memory_holds_are_refused_before_planning(training, needs, monkeypatch):
    """2^32 of four bytes; as much again for the gradient of each, and for its momentum."""
    monkeypatch.setattr("znnpy.engine.construction.planned", None)
    wide = {"conv": {"channels": 2**16, "size": 1}}
    net = {"layers": [wide, wide, {"conv": {"channels": 1, "size": 1}}]}

    def refused(machine, limit=None):
        monkeypatch.setattr("znnpy.engine.memory.limits.whole_memory", lambda: machine << 30)
        with pytest.raises(PlanError) as error:
            Model(net, 1, threads=1, training=training, hardware=Hardware(max_memory=limit))
        return str(error.value)

    assert f"{needs} GiB of memory; max_memory is 1.0 GiB" in refused(200, 1 << 30)
    copies = "32.0" if training else "16.0"
    more = f"{needs} GiB of memory, and {copies} GiB more while they are loaded or saved"
    for machine in (8, 60) if training else (8, 31):
        assert f"{more}; this machine has {machine}.0 GiB" in refused(machine)


def test_the_same_shape_is_tried_once_for_one_that_fits():
    with small() as model:
        layout, tried = model._layout, []

        def needs(other):
            tried.append(other.geometry.output_shapes)
            return 2

        with pytest.raises(ZnnpyError, match="no smaller output shape fits either"):
            refuse_above(1, 2, layout, needs)
        known = [layout.geometry.output_shapes, *tried]
    assert all(shapes not in known[:n] for n, shapes in enumerate(known))


def test_a_plan_that_runs_strides_by_fft_is_refused():
    net = network(
        [("x", "input", 1), ("y", "transfer", 1)],
        [("conv", "x", "y", size(2, 2, 2, stride=(2, 2, 2)))],
    )
    plan = {"e0": {"forward": "fft", "gradient": "fft", "weight": "fft"}}
    with pytest.raises(ZnnpyError, match="e0"):
        Model(net, (2, 2, 2), threads=1, plan=plan)


@pytest.mark.parametrize(("needed", "said"), [(1 << 21, "2.0 MiB"), ((1 << 20) + 1, "1,048,577 B")])
def test_memory_that_is_too_little_by_a_byte_does_not_read_the_same(needed, said):
    with small() as model, pytest.raises(ZnnpyError, match=f"needs at least {said}, max_memory"):
        refuse_above(1 << 20, needed, model._layout, lambda _: needed)
