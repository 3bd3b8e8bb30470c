"""Each output by a loss of its own: sums of terms, gradients as differences say, whatever computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax

from znnpy import Hardware, Model, Training
from znnpy.errors import ConfigError, NetworkError, ZnnpyError

Array = NDArray[Any]
Arrays = dict[str, Array]
NET = {
    "nodes": {
        "raw": {"kind": "input", "channels": 1},
        "shared": {"kind": "transfer", "channels": 3, "function": "tanh"},
        "pooled": {"kind": "sum", "channels": 3},
        "classes": {"kind": "transfer", "channels": 3},
        "joins": {"kind": "transfer", "channels": 2, "function": "logistic"},
        "values": {"kind": "transfer", "channels": 10},
    },
    "edges": {
        "c": {"kind": "conv", "from": "raw", "to": "shared", "size": [1, 3, 3], "padding": "same"},
        "p": {"kind": "max_pool", "from": "shared", "to": "pooled", "size": 2, "stride": 2},
        "a": {"kind": "conv", "from": "shared", "to": "classes", "size": 1},
        "b": {"kind": "conv", "from": "shared", "to": "joins", "size": 1},
        "v": {"kind": "conv", "from": "pooled", "to": "values", "size": 1},
    },
}
LOSSES: dict[str, Any] = {
    "classes": {"kind": "softmax", "class_weights": [1, 2, 4]},
    "joins": "bce_dice",
    "values": "square",
}
FACTORS = {"joins": 0.5, "values": 0.25}


def model(precision: str = "float64", **given: Any) -> Model:
    training = Training(factors=given.pop("factors", FACTORS), microbatch=given.pop("microbatch", None))  # fmt: skip
    return Model(NET, (2, 4, 4), batch=2, conv="direct", seed=3, **{"threads": 2, "loss": LOSSES, **given},
                 training=training, hardware=Hardware(precision=precision))  # type: ignore[arg-type]  # fmt: skip


def batch(model: Model) -> tuple[Array, Arrays, Arrays]:
    """Images, targets and weights, some of them 0."""
    rng, shapes = np.random.default_rng(0), model.geometry.output_shapes
    assert shapes["values"] == (1, 2, 2)
    known = rng.integers(0, 3, (2, *shapes["classes"]))
    targets = {
        "classes": np.moveaxis(np.eye(3)[known], -1, 1),
        "joins": (rng.random((2, 2, *shapes["joins"])) < 0.4) * 1.0,
        "values": rng.normal(size=(2, 10, *shapes["values"])),
    }
    weights = {
        name: (rng.random((2, 1, *shape)) < 0.8) * rng.random((2, 1, *shape))
        for name, shape in shapes.items()
    }
    return rng.normal(size=(2, 1, 2, 4, 4)), targets, weights


def written_out(values: Arrays, targets: Arrays, weights: Arrays) -> Arrays:
    """The losses of logits, as their formulas say."""
    own = np.array([1.0, 2.0, 4.0])[:, None, None, None]
    mass = (targets["classes"] * own).sum(1, keepdims=True) * weights["classes"]
    entropy = -(log_softmax(values["classes"], 1) * targets["classes"]).sum(1, keepdims=True)
    logits, known, by = values["joins"], targets["joins"], weights["joins"] + 0 * targets["joins"]
    cross = np.logaddexp(0, logits) - known * logits
    p, axes = 1 / (1 + np.exp(-logits)), (2, 3, 4)
    inside, all_of = (by * p * known).sum(axes), (by * (p + known)).sum(axes)
    overlap = 1 - (2 * inside + 1e-5) / (all_of + 1e-5)
    square = (values["values"] - targets["values"]) ** 2 * weights["values"]
    return {
        "classes": (mass * entropy).sum() / mass.sum(),
        "joins": (cross * by).sum() / by.sum() + overlap.mean(),
        "values": square.sum() / (10 * weights["values"].sum()),
    }


def test_terms_are_those_of_their_formulas() -> None:
    with model() as own:
        x, targets, weights = batch(own)
        found: Any = own.forward(x)
        found["joins"] = np.log(found["joins"] / (1 - found["joins"]))
        wanted = written_out(found, targets, weights)
        result = own.result(own.submit(x, targets, weights))
        for name, loss in result.losses.items():
            assert loss == pytest.approx(FACTORS.get(name, 1.0) * wanted[name], rel=1e-9), name
        assert result.loss == pytest.approx(sum(result.losses.values()), rel=1e-12)
        assert set(result.losses) == set(LOSSES)


def test_gradients_are_differences() -> None:
    with model() as own:
        x, targets, weights = batch(own)
        start, (_, gradients) = own.parameters, own.loss_and_gradients(x, targets, weights)
        for name in ("c", "shared", "a", "b", "v", "values"):
            at = (0,) * start[name].ndim
            losses = []
            for step in (1e-5, -1e-5):
                moved = {key: array.copy() for key, array in start.items()}
                moved[name][at] += step
                own.set_parameters(moved)
                losses.append(own.loss_and_gradients(x, targets, weights)[0])
            slope = (losses[0] - losses[1]) / 2e-5
            assert gradients[name][at] == pytest.approx(slope, rel=1e-5, abs=1e-8), name


@pytest.mark.parametrize("microbatch", [None, 1])
def test_float32_is_float64_but_for_rounding(microbatch: int | None) -> None:
    """Of microbatches too, where Dice has a fraction of each sample in any case."""
    found = []
    for precision in ("float64", "float32"):
        with model(precision, microbatch=microbatch) as own:
            x, targets, weights = batch(own)
            gradients = own.loss_and_gradients(x, targets, weights)[1]
            found.append((own.result(own.submit(x, targets, weights)), gradients))
    (double, wanted), (single, gradients) = found
    for name, loss in double.losses.items():
        assert single.losses[name] == pytest.approx(loss, rel=1e-5)
    for name, gradient in wanted.items():
        np.testing.assert_allclose(gradients[name], gradient, rtol=1e-4, atol=1e-6)


def test_the_same_bits_on_any_threads() -> None:
    found = []
    for threads in (0, 1, 3):
        with model("float32", threads=threads) as own:
            x, targets, weights = batch(own)
            own.step(x, targets, weights)
            found.append((own.result(0).losses, own.parameters))
    for losses, parameters in found[1:]:
        assert losses == found[0][0]
        for name, array in found[0][1].items():
            assert parameters[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_mapping_of_one_loss_is_that_loss(precision: str) -> None:
    keys = {"kind": "binomial_cross_entropy"}
    found = []
    for loss in ("binomial_cross_entropy", keys, dict.fromkeys(LOSSES, keys)):
        with model(precision, loss=loss) as own:
            x, targets, weights = batch(own)
            targets["values"] = np.clip(targets["values"], 0, 1)
            own.step(x, targets, weights)
            found.append(own.parameters)
    for parameters in found[1:]:
        for name, array in found[0].items():
            assert parameters[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_factor_of_0_teaches_nothing(precision: str) -> None:
    with model(precision, factors={"values": 0}) as own:
        x, targets, weights = batch(own)
        _, gradients = own.loss_and_gradients(x, targets, weights)
        assert not gradients["v"].any()
        assert gradients["a"].any()
        assert own.result(own.submit(x, targets, weights)).losses["values"] == 0


def test_each_target_is_checked_by_its_loss() -> None:
    with model() as own:
        x, targets, _ = batch(own)
        targets["joins"] *= 2
        with pytest.raises(ZnnpyError, match="target of node 'joins': 2 at"):
            own.step(x, targets)


@pytest.mark.parametrize(
    ("loss", "error", "said"),
    [
        (LOSSES | {"valves": "square"}, ZnnpyError, r"loss: there is no output 'valves'; this network has"),
        ({"classes": "softmax"}, NetworkError, r"output 'joins' has no loss; there are those of \['classes'\]"),
        (LOSSES | {"values": "sqare"}, ConfigError, r"Model: loss\.values\.kind: is 'sqare'; did you mean 'square'"),
        (LOSSES | {"values": {"kind": "square", "gamma": 1}}, ConfigError, r"Model: loss\.values\.gamma: unknown key"),
        (LOSSES | {"values": {}}, ConfigError, r"Model: loss\.values\.kind: "),
        (LOSSES | {3: "square"}, ConfigError, r"Model: loss: must be by names of outputs; found 3"),
        (LOSSES | {"values": None}, ConfigError, r"loss\.values: must be a loss, by name or with keys; found None"),
        (LOSSES | {"joins": "softmax"}, NetworkError, r"'joins' has the function logistic, which fits loss"),
        ({}, ConfigError, r"Model: loss\.kind"),
    ],
)  # fmt: skip
def test_refusals(loss: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        model(loss=loss)


@pytest.mark.parametrize("factor", [-1, float("nan"), float("inf")])
def test_factors_stay_numbers(factor: float) -> None:
    with pytest.raises(ConfigError, match=r"training\.factors\.values: must be"):
        model(factors={"values": factor})
