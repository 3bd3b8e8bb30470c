"""Others' words for values mean znnpy's own, wherever a config holds them."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from znnpy.aliases import canonical, every, resolved
from znnpy.config.export import plain
from znnpy.config.loading import config_from
from znnpy.errors import ConfigError, ZnnpyError
from znnpy.learning.losses import LOSSES, loss_keys
from znnpy.learning.optimizers import OPTIMIZERS

CONV: dict[str, Any] = {"channels": 2, "size": 3}
ALIASES = every()
PAIRS = [(key, *pair) for key, words in ALIASES.items() for pair in words.items()]
MORE: dict[str, dict[str, Any]] = {"step": {"every": 5}}  # keys that a kind needs


def config(key: str, value: Any) -> dict[str, Any]:
    sections: dict[str, Any] = {"data": {}, "training": {"output_shape": 4}}
    conv = dict(CONV)
    place = {"normalize": sections["data"], "function": conv, "norm": conv, "init": conv}
    place.get(key, sections["training"])[key] = value
    return {
        "network": {"layers": [{"conv": conv}, {"conv": {"channels": 1, "size": 1}}]}
    } | sections


def loaded(key: str, value: Any) -> dict[str, Any]:
    return plain(config_from(config(key, value)))


@pytest.mark.parametrize(("key", "word", "own"), PAIRS)
def test_both_words_are_the_same_config(key: str, word: str, own: str) -> None:
    if own not in MORE:
        assert loaded(key, word) == loaded(key, own)
        assert loaded(key, word.upper()) == loaded(key, own)
    if key != "function":  # which has no keys of its own
        more = MORE.get(own, {})
        assert loaded(key, {"kind": word, **more}) == loaded(key, {"kind": own, **more})


@pytest.mark.parametrize(("key", "word", "own"), PAIRS)
def test_no_word_is_one_of_ours_already(key: str, word: str, own: str) -> None:
    with pytest.raises(ConfigError, match=f"is '{word}x'"):
        config_from(config(key, f"{word}x"))
    assert own not in ALIASES[key]


def test_names_of_nodes_and_files_stay() -> None:
    data = {
        "network": {"nodes": {"bce": {"kind": "input"}, "loss": {"kind": "sum"}}},
        "data": {"train": [{"image": "bce.h5", "labels": "zscore"}]},
        "run": {"directory": "sigmoid"},
    }
    before = deepcopy(data)
    assert resolved(data) == before == data


def test_a_model_understands_them_too() -> None:
    assert loss_keys("bce") == loss_keys("binomial_cross_entropy")


def test_an_entry_brings_its_aliases() -> None:
    loss = replace(LOSSES["square"], name="quadratic", aliases=("sum_of_squares",))
    optimizer = replace(OPTIMIZERS["sgd"], name="descent", aliases=("gd",))
    try:
        LOSSES.add(loss)
        OPTIMIZERS.add(optimizer)
        assert canonical("loss", "Sum_of_Squares") == "quadratic"
        assert resolved({"optimizer": {"kind": "gd"}}) == {"optimizer": {"kind": "descent"}}
        for aliases in (("square",), ("mse",), ("sum_of_squares",)):
            with pytest.raises(
                ZnnpyError, match=f"'{aliases[0]}', an alias of loss 'third', means another"
            ):
                LOSSES.add(replace(loss, name="third", aliases=aliases))
    finally:
        LOSSES.pop("quadratic", None)
        OPTIMIZERS.pop("descent", None)
    assert canonical("loss", "sum_of_squares") == "sum_of_squares"


@pytest.mark.parametrize(
    ("key", "word", "own"),
    [("normalize", "units", "unit"), ("optimizer", "adamax", "adam")],
)
def test_what_means_something_else_is_asked_about(key: str, word: str, own: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean '{own}'"):
        config_from(config(key, word))
