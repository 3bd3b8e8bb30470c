"""Settings of optimisers are those that a config may hold."""

import copy
import pickle

import numpy as np
import pytest

import znnpy
from znnpy.errors import ZnnpyError


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"momentum": 2}, "momentum: must be less than 1.0; found 2"),
        ({"momentum": -0.1}, "momentum: must be at least 0"),
        ({"kind": "adam", "beta1": 1.0}, "beta1: must be less than 1"),
        ({"kind": "adam", "beta2": 2}, "beta2: must be less than 1"),
        ({"kind": "adam", "eps": 0}, "eps: must be greater than 0"),
        ({"weight_decay": -1e-4}, "weight_decay: must be at least 0"),
        ({"weight_decay": float("nan")}, "weight_decay: must be a finite number"),
        ({"nesterov": True, "momentum": 0}, "nesterov: needs a momentum above 0"),
        ({"nesterov": 3}, "nesterov: must be true or false"),
        ({"decoupled": True}, "decoupled weight decay is AdamW's"),
        ({"kind": "adamw", "weight_decay": -1}, "weight_decay: must be at least 0"),
        ({"kind": "adam_w"}, "'adam_w' is not one of sgd, adam, adamw, lamb, lars"),
    ],
)
def test_what_a_config_refuses_is_refused(setting, words):
    with pytest.raises(ZnnpyError, match=words):
        znnpy.Optimizer(**setting)


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))]
)
def test_a_copy_is_the_same(again):
    given = znnpy.Optimizer("adam", beta1=0.5, decoupled=True, ema=0.9)
    assert again(given) == given
    assert again(given).beta1 == 0.5
    with pytest.raises(AttributeError, match="of kind adam has no 'momentum'"):
        _ = again(given).momentum


def test_what_makes_sense_is_taken():
    znnpy.Optimizer("sgd", momentum=0)
    znnpy.Optimizer("sgd", momentum=np.float32(0.5), nesterov=True, weight_decay=1e-4)
    znnpy.Optimizer("adam", beta1=0, beta2=0.5, decoupled=True, weight_decay=np.float64(0.01))
