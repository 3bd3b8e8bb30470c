"""Calls of the public names with whatever a program may have at hand: each works, or says what is wrong.

What is wrong is a ZnnpyError, never an error from inside; and what is taken gives losses that are numbers.
"""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from model_settings import model_of
from odd_values import CHAIN, GRAPH, NETWORKS, OPTIMIZER, SETTINGS, Draw
from small_models import data, small

from znnpy import Model, Optimizer, Training, load_network
from znnpy.errors import ZnnpyError

CALLS = int(os.environ.get("ZNNPY_ODD_CALLS", "400"))
SEEDS = 4
NORMED = {
    "layers": [
        {"conv": {"channels": 3, "size": 3, "norm": "batch"}},
        {"conv": {"channels": 2, "size": 1}},
    ]
}
TWO = {
    "nodes": {"x": {"kind": "input", "channels": 1}, "a": {"kind": "transfer", "channels": 2},
              "y": {"kind": "transfer", "channels": 3}},
    "edges": {"e": {"kind": "conv", "from": "x", "to": "a", "size": 3},
              "f": {"kind": "conv", "from": "x", "to": "y", "size": 2}},
}  # fmt: skip
METHODS = ["forward", "predict", "step", "submit", "loss_and_gradients", "set_parameters", "set_optimizer_state",
           "result", "task_graph_for", "iteration", "run"]  # fmt: skip
Call = tuple[str, Callable[[], Any]]


def batch(model: Model) -> tuple[Any, Any]:
    """Good inputs and targets, by node where there are several."""
    if not isinstance(model.output_shape, dict):
        return data(model)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((model.batch, 1, *model.input_shape)).astype(np.float32)
    drawn = {
        node.name: rng.random(
            (model.batch, node.channels, *model.output_shape[node.name]), np.float32
        )
        for node in model.network.outputs
    }
    return x, {name: array / array.sum(axis=1, keepdims=True) for name, array in drawn.items()}


def made(given: dict[str, Any]) -> float:
    """A model, and the loss of two updates of it."""
    with model_of(**given) as model:
        if not model._layout.training:
            return float(np.size(model.predict(np.ones((model.batch, 1, *model.input_shape)))))
        x, target = data(model)
        return model.step(x, target) + model.step(x, target, learning_rate=1e-6)


def loss(found: Any, usual: bool) -> float:
    """That of a call with usual inputs; what comes of others is arithmetic's."""
    value = found[0] if isinstance(found, tuple) else found
    return value if usual and isinstance(value, float) else 0.0


class Odd:
    """Draws calls, each as words and what makes it."""

    def __init__(self, draw: Draw, models: list[Model]) -> None:
        self.draw, self.models = draw, models

    def __iter__(self) -> Iterator[Call]:
        kinds = [self.making, self.calling, self.calling, self.optimizing, self.loading]
        while True:
            yield self.draw.one(kinds)()

    def making(self) -> Call:
        given = {"network": CHAIN, "output_shape": 3, "threads": 1, "conv": "direct"}
        given |= {name: self.draw.near(SETTINGS[name]) for name in self.draw.some([*SETTINGS], 2)}
        return f"Model({given})", lambda: made(given)

    def optimizing(self) -> Call:
        given = {
            name: self.draw.near(["sgd", "adam", 0.5]) for name in self.draw.some(OPTIMIZER, 3)
        }
        return f"Optimizer({given})", lambda: Optimizer(**given).hyperparameters(0.1, 1)

    def loading(self) -> Call:
        given = self.draw.near(NETWORKS)
        return f"load_network({given!r})", lambda: load_network(given)

    def calling(self) -> Call:
        model, name = self.draw.one(self.models), self.draw.one(METHODS)
        if name == "iteration":
            value = self.draw.odd()
            return f"iteration = {value!r}", lambda: setattr(model, "iteration", value)
        if name == "run":
            return "staged, run", lambda: [model.staged(), model.run()]
        given, named = self.arguments(model, name), {}
        if name in ("step", "submit") and self.draw.often(0.3):
            named = {"learning_rate": self.draw.odd()}
        shown = ", ".join(
            f"{type(a).__name__} {getattr(a, 'dtype', '')} {a!r}"[:300] for a in given
        )
        usual = given[0] is batch(model)[0]
        return f"{name}({shown}, {named})", lambda: loss(
            getattr(model, name)(*given, **named), usual
        )

    def arguments(self, model: Model, name: str) -> list[Any]:
        if name == "result":
            return [self.draw.odd()]
        if name == "task_graph_for":
            return [self.draw.one([0, 1, 2, None, "2", -1, 10**9, 2.0, np.int8(2)])]
        if name.startswith("set_"):
            state = model.optimizer_state if name.endswith("state") else model.parameters
            return [self.arrays(state)]
        x, target = batch(model)
        if name in ("forward", "predict"):
            return [self.arrays(x)]
        return [self.arrays(it) if self.draw.often(0.5) else it for it in (x, target, target)]

    def arrays(self, good: Any) -> Any:
        """An array, or some by name, with mistakes."""
        if not isinstance(good, dict) or not good:
            return self.draw.array(good) if isinstance(good, np.ndarray) else self.draw.odd()
        if self.draw.often(0.2):
            return self.draw.mistaken(good)
        name = self.draw.one([*good])
        return good | {name: self.draw.array(good[name])}


def complaint(call: Callable[[], Any]) -> str:
    """What is wrong about how a call ends, "" if nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = call()
    except ZnnpyError as error:
        return "" if str(error).strip() else "says nothing"
    except BaseException as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error}, at {frame.filename}:{frame.lineno}"[:400]
    if isinstance(found, float) and not abs(found) < 1e6:
        return f"was taken, and makes {found}"
    return ""


@pytest.fixture(scope="module")
def models() -> Iterator[list[Model]]:
    """Of each engine, with and without training, of two outputs, in microbatches, of classes."""
    same: dict[str, Any] = {"output_shape": 3, "threads": 1, "conv": "direct"}
    with ExitStack() as stack:
        yield [
            stack.enter_context(model)
            for model in (
                small(),
                small(precision="float64", optimizer="adam"),
                small(batch=4, microbatch=2, loss="softmax", optimizer="adam"),
                model_of(NORMED, training=False, batch=2, **same),
                model_of(NORMED, loss={"kind": "ce_dice"}, **same),
                Model(
                    TWO,
                    training=Training(factors={"y": 2}),
                    batch=2,
                    output_shape={"a": 2, "y": 3},
                    threads=1,
                ),
                model_of(GRAPH, loss={"kind": "malis", "offsets": [[0, 0, 1], [0, 1, 0]]}, **same),
            )
        ]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_call_works_or_says_what_is_wrong(seed: int, models: list[Model]) -> None:
    found: dict[str, str] = {}
    states = [(model.parameters, model.optimizer_state) for model in models]
    for _, (words, call) in zip(range(CALLS // SEEDS), Odd(Draw(seed), models), strict=False):
        if wrong := complaint(call):
            found[words[:600]] = wrong
        for model, (parameters, state) in zip(models, states, strict=True):
            model.set_parameters(parameters)
            model.set_optimizer_state(state)
            model.iteration = 0
    for model in models:
        if model._layout.training:
            assert np.isfinite(model.step(*batch(model))), "a refused call has left something"
    assert not found, "\n".join(f"{words}\n    {wrong}" for words, wrong in found.items())
