"""Words of other libraries for values of a config: each stands for the one word that znnpy has for the same."""

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
"""By key: the word that others have, and ours. A word that means something else elsewhere is none of them: `minmax`
looks at a volume's own values, `unit` at their type."""


def canonical(key: str, word: str) -> str:
    """The word that znnpy has for the value of a key; the same word where it is one, or nothing that is known."""
    return ALIASES.get(key, {}).get(word.lower(), word)


def resolved(data: Any) -> Any:
    """Plain values of a config with znnpy's own words, as values of their keys and as a `kind` below; a copy."""
    if isinstance(data, Mapping):
        return {key: _value(key, resolved(value)) for key, value in data.items()}
    return [resolved(item) for item in data] if isinstance(data, list | tuple) else data


def _value(key: Any, value: Any) -> Any:
    if isinstance(value, str):
        return canonical(str(key), value)
    kind = value.get("kind") if isinstance(value, dict) else None
    return value | {"kind": canonical(str(key), kind)} if isinstance(kind, str) else value
