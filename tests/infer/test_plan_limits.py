"""What a limit of memory leaves to the plan of an update beside what is saved of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from znnpy.cli.config_summary import summarise
from znnpy.config import Config, config_from
from znnpy.errors import PlanError
from znnpy.infer.config_model import training_model
from znnpy.infer.plan_limits import plan_room
from znnpy.network import trained_network

KIB = 1 << 10


def config(limit: int | None, optimizer: str = "sgd") -> Config:
    """Of 1024 + 131072 + 128 parameters, a size that takes 516.5 KiB."""
    layers = [{"conv": {"channels": n, "size": 1, "bias": False}} for n in (1024, 128, 1)]
    training = {"output_shape": 1, "optimizer": optimizer, "loss": "square"}
    given: dict[str, Any] = {"network": {"layers": layers}, "training": training}
    return config_from(given | {"run": {"max_memory": limit, "threads": 1}})


def trains(config: Config) -> None:
    training_model(config, trained_network(config), None).close()


@pytest.mark.parametrize("begins", [summarise, trains])
@pytest.mark.parametrize(
    ("optimizer", "limit", "words"),
    [
        ("sgd", 1000, "checkpoint is written from needs 1.0 MiB; max_memory is 1000.0 KiB"),
        ("adam", 1500, "checkpoint is written from needs 1.5 MiB; max_memory is 1.5 MiB"),
        ("sgd", 2400, "need at least 1.5 MiB of memory; max_memory is 2.3 MiB, of which 1.3 MiB are left beside"),
        ("adam", 3000, "need at least 2.0 MiB of memory; max_memory is 2.9 MiB, of which 1.4 MiB are left beside"),
        ("sgd", 2600, "1 x 1 x 1 needs at least .* max_memory is 2.5 MiB, of which 1.5 MiB are left beside the copy"),
    ],
)  # fmt: skip
def test_parameters_count_with_the_copy_that_is_saved(
    begins: Callable[[Config], object], optimizer: str, limit: int, words: str
) -> None:
    """With momentum, values, gradients and states take 1549.5 KiB and the copy 1033; with Adam, 2066 and 1549.5."""
    with pytest.raises(PlanError, match=words):
        begins(config(limit * KIB, optimizer))


def test_what_is_left_is_the_plan_s() -> None:
    least, saved = summarise(config(None)), 2 * 4 * (1024 + 131072 + 128)
    assert least["checkpoint_bytes"] == saved
    enough = least["memory_bytes"] + saved
    limited = config(enough)
    with plan_room(limited, trained_network(limited)) as room:
        assert room == least["memory_bytes"]
    assert summarise(limited)["memory_bytes"] == least["memory_bytes"]
    with pytest.raises(PlanError, match="no smaller output shape fits either"):
        summarise(config(enough - 1))
