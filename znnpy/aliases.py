"""Other libraries' names for values of a config (bce, sigmoid, kaiming), and the name znnpy has for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ALIASES: Mapping[str, Mapping[str, str]] = {
    "loss": {
        "bce": "binomial_cross_entropy",
        "bce_with_logits": "binomial_cross_entropy",
        "binary_cross_entropy": "binomial_cross_entropy",
        "ce": "softmax",
        "cross_entropy": "softmax",
        "mse": "square",
        "l2": "square",
        "dice_bce": "bce_dice",
        "dice_ce": "ce_dice",
    },
    "function": {
        "sigmoid": "logistic",
        "swish": "silu",
        "hardswish": "hard_swish",
        "leakyrelu": "leaky_relu",
        "softsign": "soft_sign",
        "identity": "linear",
    },
    "norm": {
        f"{kind}{tail}": kind
        for kind in ("batch", "instance", "group", "layer")
        for tail in ("norm", "_norm")
    },
    "init": {"kaiming": "he", "glorot": "xavier", "gaussian": "normal"},
    "normalize": {"zscore": "mean_std", "z_score": "mean_std", "standardize": "mean_std"},
    "schedule": {"cosine_annealing": "cosine", "multistep": "step"},
}
"""By key: another library's name, and znnpy's name for the same thing.

Names with another meaning elsewhere are left out: `minmax` scales by a volume's own values, `unit` by its type.
"""


def canonical(key: str, word: str) -> str:
    """Return znnpy's name for the value of a key; a name without an alias unchanged."""
    return ALIASES.get(key, {}).get(word.lower(), word)


def resolved(data: Any) -> Any:
    """Return a copy of plain config values with aliases replaced, as values of keys and as a `kind` below them."""
    if isinstance(data, Mapping):
        return {key: _value(key, resolved(value)) for key, value in data.items()}
    return [resolved(item) for item in data] if isinstance(data, list | tuple) else data


def _value(key: Any, value: Any) -> Any:
    if isinstance(value, str):
        return canonical(str(key), value)
    kind = value.get("kind") if isinstance(value, dict) else None
    return value | {"kind": canonical(str(key), kind)} if isinstance(kind, str) else value
