"""Every loss and every optimiser that is listed against its formula, written out in float64 NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pytest
from loss_cases import cases, named
from malis_by_pairs import brute

from znnpy import Hardware, Model
from znnpy.config import json_schema, template
from znnpy.engine import Optimizer
from znnpy.errors import ZnnpyError
from znnpy.learning.loss import Objective
from znnpy.learning.losses import LOSSES
from znnpy.learning.optimizers import OPTIMIZERS, Adam

SHAPE = (2, 3, 3, 2, 2)  # batch, image, z, y, x
BATCH, IMAGE, VOXELS = 0, 1, (2, 3, 4)
Formula = Callable[[Any, str, Any, Any, Any], Any]
"""The loss of keys, the output's function, its values, targets and weights, the latter (batch, 1, z, y, x)."""


def logistic(y: Any) -> Any:
    return 1 / (1 + np.exp(-y))


def shares(y: Any) -> Any:
    return np.exp(y) / np.exp(y).sum(axis=IMAGE, keepdims=True)


def over_images(losses: Any, w: Any) -> Any:
    """The weighted mean over voxels and images."""
    return (losses * w).sum() / (w * np.ones(SHAPE)).sum()


def square(keys: Any, function: str, y: Any, t: Any, w: Any) -> Any:
    return over_images((y - t) ** 2, w)


def binomial(keys: Any, function: str, y: Any, t: Any, w: Any) -> Any:
    p = logistic(y)
    return over_images(-t * np.log(p) - (1 - t) * np.log(1 - p), w)


def softmax(keys: Any, function: str, y: Any, t: Any, w: Any) -> Any:
    weights = keys.class_weights or (1.0, 1.0, 1.0)
    e, of_class = keys.label_smoothing, np.reshape(weights, (3, 1, 1, 1))
    losses = -(of_class * ((1 - e) * t + e / 3) * np.log(shares(y))).sum(axis=IMAGE, keepdims=True)
    return (losses * w).sum() / ((of_class * t).sum(axis=IMAGE, keepdims=True) * w).sum()


def focal(keys: Any, function: str, y: Any, t: Any, w: Any) -> Any:
    """Lin et al. 2017, equation 5; without alpha, equation 4."""
    one, other = (1.0, 1.0) if keys.alpha is None else (keys.alpha, 1 - keys.alpha)
    if function == "softmax":
        p, of_class = shares(y), np.reshape((other, one, one), (3, 1, 1, 1))
        losses = -(of_class * t * (1 - p) ** keys.gamma * np.log(p)).sum(axis=IMAGE, keepdims=True)
        return (losses * w).sum() / w.sum()
    p = logistic(y)
    ones = -one * t * (1 - p) ** keys.gamma * np.log(p)
    zeros = -other * (1 - t) * p**keys.gamma * np.log(1 - p)
    return over_images(ones + zeros, w)


def dice(keys: Any, function: str, y: Any, t: Any, w: Any) -> Any:
    p = shares(y) if function == "softmax" else logistic(y)
    axes = (BATCH, *VOXELS) if keys.batch else VOXELS
    both, each = (w * p * t).sum(axis=axes), (w * (p + t)).sum(axis=axes)
    lacks = 1 - (2 * both + keys.smooth) / (each + keys.smooth)
    return lacks[..., 0 if keys.include_background else 1 :].mean()


def bce_dice(keys: Any, function: str, y: Any, t: Any, w: Any) -> Any:
    return keys.bce * binomial(keys, function, y, t, w) + keys.dice * dice(keys, function, y, t, w)


def ce_dice(keys: Any, function: str, y: Any, t: Any, w: Any) -> Any:
    losses = -(t * np.log(shares(y))).sum(axis=IMAGE, keepdims=True)
    entropy = (losses * w).sum() / w.sum()
    return keys.ce * entropy + keys.dice * dice(keys, "softmax", y, t, w)


def malis(keys: Any, function: str, y: Any, t: Any, w: Any) -> Any:
    """The mean over samples."""
    weights = w * np.ones(SHAPE)
    return np.mean(
        [brute(*each, keys.offsets, keys.positive) for each in zip(y, t, weights, strict=True)]
    )


LOSS_FORMULAS: dict[str, Formula] = {
    "square": square,
    "binomial_cross_entropy": binomial,
    "softmax": softmax,
    "focal": focal,
    "dice": dice,
    "bce_dice": bce_dice,
    "ce_dice": ce_dice,
    "malis": malis,
}


def test_all_that_is_listed_has_a_formula_here() -> None:
    assert LOSS_FORMULAS.keys() == LOSSES.keys()
    assert {case.kind for case in STEPS} == OPTIMIZERS.keys()


class Added(Adam):
    """An optimiser of a name of its own."""

    kind: Literal["added"]  # type: ignore[assignment]


def test_the_schema_the_template_and_the_model_know_what_is_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = json_schema()["$defs"]["TrainingSection"]["properties"]
    for key, listed in (("loss", LOSSES), ("optimizer", OPTIMIZERS)):
        assert training[key]["discriminator"]["mapping"].keys() == listed.keys()
        assert all(re.search(rf"\b{name}\b", template()) for name in listed)
    added = replace(OPTIMIZERS["adam"], name="added", keys=Added)
    monkeypatch.setitem(OPTIMIZERS, "added", added)
    words = "{kind: added, beta1: 0.9, beta2: 0.999, eps: 1e-08, weight_decay: 0}"
    assert f"  # optimizer: {words}\n" in template()
    assert Optimizer("added", beta1=0.5).state_names == ("mean", "variance")
    with pytest.raises(
        ZnnpyError, match="'other' is not one of sgd, adam, adamw, lamb, lars, added"
    ):
        Optimizer("other")


@pytest.mark.parametrize(("given", "function"), cases(), ids=named)
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_and_gradients(given: Any, function: str, weighted: bool) -> None:
    """Gradients by central differences of the formula."""
    loss = LOSSES[given["kind"]]
    keys, formula = loss.keys(**given), LOSS_FORMULAS[given["kind"]]
    reading = next(it for it in loss.readings if function in it.functions or not it.functions)
    rng = np.random.default_rng(1)
    values, numbers = rng.normal(0, 2, SHAPE), rng.integers(0, 3, (2, 1, *SHAPE[2:]))
    target = (np.arange(3)[:, None, None, None] == numbers).astype(np.float64)
    weight = np.ones((2, 1, *SHAPE[2:]))
    if weighted:
        weight = (
            rng.random(weight.shape)
            if given["kind"] != "malis"
            else np.round(rng.random(weight.shape))
        )
    precision = 1e-6 if given["kind"] == "malis" else 1e-9  # whose shares of pairs are float32
    found, gradient = Objective(loss, keys, reading).value_and_gradient(values, target, weight)
    assert found == pytest.approx(formula(keys, function, values, target, weight), rel=precision)
    for index in np.ndindex(*SHAPE):
        step = np.zeros(SHAPE)
        step[index] = 1e-5
        above, below = (
            formula(keys, function, values + by, target, weight) for by in (step, -step)
        )
        assert gradient[index] == pytest.approx((above - below) / 2e-5, rel=1e-5, abs=1e-9)


@dataclass
class Steps:
    """Updates of parameters p by gradients g, one after the other, with what is kept from one to the next."""

    kind: str
    keys: dict[str, Any]
    update: Callable[[Steps, Any, Any, int, float], Any]
    kept: dict[str, Any] = field(default_factory=dict)

    def of(self, name: str, default: float = 0.0) -> float:
        return float(self.keys.get(name, default))


def sgd(own: Steps, p: Any, g: Any, t: int, rate: float) -> Any:
    """Sutskever et al. 2013 as PyTorch has it: the velocity is not times the rate."""
    g = g + own.of("weight_decay") * p
    velocity = own.of("momentum", 0.9) * own.kept.get("v", 0.0) + g
    own.kept["v"] = velocity
    return p - rate * (g + own.of("momentum", 0.9) * velocity if own.of("nesterov") else velocity)


def adam(own: Steps, p: Any, g: Any, t: int, rate: float) -> Any:
    """Kingma and Ba 2015, algorithm 1; decoupled, Loshchilov and Hutter 2019, algorithm 2."""
    one, two, decay = own.of("beta1", 0.9), own.of("beta2", 0.999), own.of("weight_decay")
    shrunk = p * (1 - rate * decay) if own.of("decoupled") else p
    g = g if own.of("decoupled") else g + decay * p
    m = one * own.kept.get("m", 0.0) + (1 - one) * g
    v = two * own.kept.get("v", 0.0) + (1 - two) * g**2
    own.kept |= {"m": m, "v": v}
    return shrunk - rate * (m / (1 - one**t)) / (np.sqrt(v / (1 - two**t)) + own.of("eps", 1e-8))


def adamw(own: Steps, p: Any, g: Any, t: int, rate: float) -> Any:
    """Loshchilov and Hutter 2019, algorithm 2, with the decay that PyTorch begins with."""
    shrunk = p * (1 - rate * own.of("weight_decay", 0.01))
    plain = Steps(
        "adam", {k: v for k, v in own.keys.items() if k != "weight_decay"}, adam, own.kept
    )
    return shrunk + adam(plain, p, g, t, rate) - p


def lamb(own: Steps, p: Any, g: Any, t: int, rate: float) -> Any:
    """You et al. 2020, algorithm 2 with phi the identity; biases, which do not decay, are steps of Adam."""
    one, two = own.of("beta1", 0.9), own.of("beta2", 0.999)
    m = one * own.kept.get("m", 0.0) + (1 - one) * g
    v = two * own.kept.get("v", 0.0) + (1 - two) * g**2
    own.kept |= {"m": m, "v": v}
    r = (m / (1 - one**t)) / (np.sqrt(v / (1 - two**t)) + own.of("eps", 1e-6))
    if p.ndim == 1:
        return p - rate * r
    r = r + own.of("weight_decay", 0.01) * p
    return p - rate * np.sqrt((p**2).sum()) / np.sqrt((r**2).sum()) * r


def lars(own: Steps, p: Any, g: Any, t: int, rate: float) -> Any:
    """You et al. 2017, algorithm 1, but the velocity is not times the rate; biases are steps of SGD."""
    decay = own.of("weight_decay", 5e-4)
    if p.ndim > 1:
        size, length = np.sqrt((p**2).sum()), np.sqrt((g**2).sum())
        g = own.of("trust", 1e-3) * size / (length + decay * size) * (g + decay * p)
    velocity = own.of("momentum", 0.9) * own.kept.get("v", 0.0) + g
    own.kept["v"] = velocity
    return p - rate * velocity


STEPS = [
    Steps("sgd", {}, sgd),
    Steps("sgd", {"momentum": 0.0, "weight_decay": 0.1}, sgd),
    Steps("sgd", {"momentum": 0.7, "nesterov": True, "weight_decay": 0.2}, sgd),
    Steps("adam", {}, adam),
    Steps("adam", {"beta1": 0.6, "beta2": 0.8, "eps": 1e-3, "weight_decay": 0.3}, adam),
    Steps("adam", {"beta1": 0.5, "weight_decay": 0.3, "decoupled": True}, adam),
    Steps("adamw", {}, adamw),
    Steps("adamw", {"beta2": 0.8, "eps": 1e-3, "weight_decay": 0.3}, adamw),
    Steps("lamb", {}, lamb),
    Steps("lamb", {"beta1": 0.6, "beta2": 0.8, "eps": 1e-3, "weight_decay": 0.3}, lamb),
    Steps("lamb", {"weight_decay": 0.0}, lamb),
    Steps("lars", {}, lars),
    Steps("lars", {"momentum": 0.0, "trust": 0.2, "weight_decay": 0.3}, lars),
    Steps("lars", {"momentum": 0.7, "trust": 0.1, "weight_decay": 0.0}, lars),
]


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("case", STEPS, ids=lambda it: f"{it.kind}-{it.keys}")
def test_updates_of_a_model(case: Steps, precision: Any) -> None:
    """By its own gradients, at rates that change; only filters decay."""
    tolerance = 1e-6 if precision == "float64" else 2e-5
    net = {"layers": [{"conv": {"channels": 3, "size": [1, 2, 2]}}]}
    optimizer, rng = Optimizer(kind=case.kind, **case.keys), np.random.default_rng(0)
    with Model(
        net,
        (2, 3, 3),
        threads=1,
        optimizer=optimizer,
        loss="square",
        conv="direct",
        hardware=Hardware(precision=precision),
    ) as model:
        own = {name: Steps(case.kind, dict(case.keys), case.update) for name in model.parameters}
        for name, steps in own.items():
            if model.parameters[name].ndim == 1:
                steps.keys["weight_decay"] = 0.0
        wanted = {name: np.float64(values) for name, values in model.parameters.items()}
        for t, rate in enumerate((0.1, 0.03, 0.05, 0.01), start=1):
            x, target = rng.normal(size=(1, 1, 2, 4, 4)), rng.normal(size=(1, 3, 2, 3, 3))
            _, gradients = model.loss_and_gradients(x, target)
            for name, g in gradients.items():
                wanted[name] = own[name].update(own[name], wanted[name], np.float64(g), t, rate)
            model.step(x, target, learning_rate=rate)
            for name, values in model.parameters.items():
                np.testing.assert_allclose(values, wanted[name], rtol=tolerance, atol=tolerance)
