"""Values that programs pass by mistake: of all types, and good ones that one mistake was made in."""

from __future__ import annotations

import decimal
import fractions
import pathlib
from collections import OrderedDict, UserDict
from collections.abc import Callable
from copy import copy
from datetime import datetime
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from znnpy import Optimizer
from znnpy.learning.losses import LOSSES


class Hostile:
    """Raises whatever is asked of it."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array")

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __len__(self) -> int:
        raise RuntimeError("no length")


def values() -> list[Any]:
    """Of all types; some can be read once, so that each call makes them anew."""
    return [
        None, True, False, np.True_, "", "adam", "x" * 300, "\0", "a\nb", b"", b"x", "{0}", "1", "nan",
        0, 1, 2, 3, -1, 7, 10**9, 2**31, 2**63, -(2**63), 10**30, 10**400, 0.0, -0.0, 0.5, 1.0, -1.5, 1e-320,
        1e300, np.nan, np.inf, -np.inf, 1j, 1 + 0j, decimal.Decimal(2), fractions.Fraction(1, 3),
        np.float16(1), np.float32("nan"), np.longdouble(2), np.int8(-1), np.uint64(2**64 - 1),
        np.complex64(1), np.datetime64("NaT"), datetime.max, np.array(3), np.array("x"), np.array(None),
        np.array([]), np.zeros((0, 1)), np.ones(3), np.ma.masked, np.ma.array(3, mask=True), np.ma.zeros(2),
        memoryview(b"abc"), range(3), [], [1], [[1, 2], [3]], (3, 3), (3, 3, 3), (3, "3", 3), [3, None, 3],
        [1e400, 0, 0], [0, 0, 0], [[0, 0, 0]], {}, {"kind": "adam"}, {"kind": None}, {1: 2}, {None: 1},
        {"y": 1}, {"y": None}, {"x": {}}, {"y": (3, 3, 3)}, {"a": [1]}, {(1, 2): 3}, {"y": {"y": 1}},
        {"kind": "sgd", 1: 2}, {3}, object(), Hostile(), Optimizer, len, iter([1]), SimpleNamespace(shape=()),
        np.float32, ..., MappingProxyType({"y": 1}), UserDict(y=1), OrderedDict(y=0.5), pathlib.Path("/no"),
    ]  # fmt: skip


ARRAYS: list[Callable[[Any], Any]] = [
    lambda a: a, lambda a: a[..., ::-1], lambda a: np.asfortranarray(a), lambda a: a.astype(">f4"),
    lambda a: a.tolist(), lambda a: a[..., :-1], lambda a: a[0], lambda a: a[None], lambda a: a[:0],
    lambda a: a.astype(np.float64) * 1e300, lambda a: a * np.nan, lambda a: a * 1e9, lambda a: -a - 1,
    lambda a: (255 * a).astype(np.uint8), lambda a: a > 0, lambda a: a.astype(object),
    lambda a: a.astype(str), lambda a: a.astype(complex), lambda a: a.astype(np.float16),
    lambda a: a.astype("M8[s]"), lambda a: a.astype("f4,f4"), lambda a: np.ma.array(a, mask=a > 0.5),
    lambda a: np.ma.array(a), lambda a: np.broadcast_to(a.dtype.type(0.5), a.shape), lambda a: a.T,
    lambda a: {"x": a}, lambda a: {"y": a}, lambda a: {"y": a, "x": a}, lambda a: a.tobytes(),
    lambda a: memoryview(a), lambda a: np.matrix(a.reshape(1, -1)), lambda a: [a], lambda a: iter(a),
    lambda a: a.reshape(-1), lambda a: np.zeros((1,) * 40), lambda a: a.astype(np.longdouble),
    lambda a: _read_only(a), lambda a: np.ma.array(a, mask=True), lambda a: np.ma.array(a.astype(complex), mask=True),
]  # fmt: skip
"""What becomes of a good array."""

CHAIN = {"layers": [{"conv": {"channels": 4, "size": 3}}, {"conv": {"channels": 2, "size": 3}}]}
GRAPH = {
    "nodes": {
        "x": {"kind": "input", "channels": 1},
        "a": {"kind": "transfer", "channels": 3, "function": "elu", "norm": {"kind": "group", "groups": 3}},
        "y": {"kind": "transfer", "channels": 2, "init": {"kind": "constant", "value": 1}},
    },
    "edges": {
        "e": {"kind": "conv", "from": "x", "to": "a", "size": [1, 3, 3], "padding": [0, 1, 1], "init": "he"},
        "f": {"kind": "conv", "from": "a", "to": "y", "size": 2, "groups": 1},
    },
}  # fmt: skip
OTHERS = {
    "input": 1,
    "layers": [
        {"conv": {"channels": 2, "size": 3, "norm": "batch", "function": "relu", "padding": "same"}},
        {"dropout": 0.5}, {"max_filter": [1, 2, 2]}, {"max_pool": {"size": 2, "stride": 1}},
        {"upsample": {"factor": 2}}, {"avg_pool": 2}, {"crop": [0, 0, 1]}, {"identity": {}},
        {"conv_transpose": {"channels": 2, "size": 2, "stride": 2}},
    ],
}  # fmt: skip
UNET = {
    "unet": {"widths": [2, 3], "down": [1, 2, 2], "convs": 1, "norm": "instance", "up": "linear"}
}
NETWORKS: list[Any] = [
    CHAIN,
    GRAPH,
    OTHERS,
    UNET,
    {"network": CHAIN},
    {"layers": []},
    {"znn": "x.znn"},
    "/",
    "x.znn",
]
PLAN = {
    name: {"forward": "direct", "gradient": "direct", "weight": "direct", "reason": ""}
    for name in ("conv1", "conv2")
}
SETTINGS: dict[str, list[Any]] = {
    "network": NETWORKS,
    "output_shape": [3, (3, 4, 5), [2, 2, 2], {"output": 3}, {"y": 2}, np.array([2, 3, 4]), 2**40],
    "batch": [1, 2, np.int16(2), 4],
    "microbatch": [1, 2, np.int16(2)],
    "threads": [0, 1, np.int8(2)],
    "conv": ["direct", "fft", "spectral", "winograd"],
    "loss": [
        *LOSSES, *[{"kind": loss} for loss in LOSSES], "mse", {"kind": "focal", "gamma": 2.0, "alpha": 0.5},
        {"kind": "malis", "offsets": [[0, 0, 1], [0, 1, 0]], "positive": 0.5},
        {"kind": "softmax", "class_weights": [1, 2], "label_smoothing": 0.1},
        {"kind": "bce_dice", "bce": 1, "dice": 1, "smooth": 1.0, "batch": True},
    ],
    "optimizer": ["sgd", "adam", {"kind": "adam", "beta1": 0.5, "eps": 1e-3}, Optimizer("adam"),
                  {"kind": "sgd", "momentum": 0.5, "nesterov": True, "weight_decay": 0.1}],
    "factors": [{"output": 2}, {"output": 0}, {"output": np.float64(1)}, {"output": "1"}],
    "max_memory": ["8GiB", "1 B", 1 << 40, np.int64(1 << 40), "8 gib"],
    "precision": ["float32", "float64", np.float32, "double"],
    "policy": ["fifo", "layers", "FIFO"],
    "record": [0, 4, np.uint8(4)],
    "plan": [PLAN, {"conv1": PLAN["conv1"]}],
    "distributed": [{"strategy": "tree", "chunk": "1KiB", "colors": 2, "shared_memory": False}],
    "training": [True, False],
    **{name: [] for name in ("seed", "clip_norm", "steal_seed", "report", "ranks")},
}  # fmt: skip
"""Arguments of a model, with what suits them nearly or wholly."""
OPTIMIZER = [
    "kind",
    "momentum",
    "nesterov",
    "weight_decay",
    "beta1",
    "beta2",
    "eps",
    "decoupled",
    "ema",
]


class Draw:
    """Draws values; the same ones from the same seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def often(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one(self, of: list[Any]) -> Any:
        return of[int(self.rng.integers(len(of)))]

    def some(self, of: list[Any], most: int) -> list[Any]:
        return [of[i] for i in self.rng.permutation(len(of))[: self.rng.integers(1, most + 1)]]

    def odd(self) -> Any:
        return self.one(values())

    def near(self, good: list[Any]) -> Any:
        """One of some good values, as it is, with a mistake in it, or another altogether."""
        if not good or self.often(0.3):
            return self.odd()
        return self.mistaken(self.one(good)) if self.often(0.6) else self.one(good)

    def mistaken(self, good: Any) -> Any:
        """A copy in which one value, anywhere in it, is odd, is missing, or has another name."""
        if not isinstance(good, dict | list) or not good or self.often(0.15):
            return self.odd()
        other: Any = copy(good)
        key = self.one(list(good) if isinstance(good, dict) else list(range(len(good))))
        if self.often(0.1):
            del other[key]
        elif isinstance(other, dict) and self.often(0.1):
            other[self.one([1, None, "", "kind", "x y", "size", ("a",), b"k"])] = other.pop(key)
        else:
            other[key] = self.mistaken(good[key])
        return other

    def array(self, good: Any) -> Any:
        return self.one(ARRAYS)(good) if self.often(0.8) else self.odd()


def _read_only(array: Any) -> Any:
    other = array.copy()
    other.setflags(write=False)
    return other
