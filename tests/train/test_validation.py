"""Validation over a number of patches that batches do not divide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy.data.sampling.sample import InputPatch, OutputPatch
from znnpy.data.sampling.sampler import Sampler
from znnpy.data.sampling.targets import ImageTarget
from znnpy.data.scene import Scene
from znnpy.data.volume import ArrayVolume
from znnpy.learning.readings import LOGITS
from znnpy.network import load_network, objectives
from znnpy.train.validation import Validation

ARRAY = np.random.default_rng(0).random((1, 9, 1, 1)).astype(np.float32)
LOSS = "binomial_cross_entropy"


class Unchanged:
    """A model whose output is its input."""

    def forward(self, x: dict[str, Any]) -> Any:
        """The one node's values."""
        return next(iter(x.values()))


class Never:
    """No signal."""

    requested: int | None = None


class Later:
    """A signal that comes while the second batch is looked at."""

    asked = 0

    @property
    def requested(self) -> int | None:
        """None twice."""
        self.asked += 1
        return 15 if self.asked > 2 else None


def validated(batch: int, patches: int = 5) -> dict[str, float]:
    found = cut_short(batch, patches, Never())
    assert found
    return found


def cut_short(batch: int, patches: int, stop: Any) -> dict[str, float] | None:
    network = load_network({"layers": [{"conv": {"channels": 1, "size": 1}}]})
    (source,), (output,) = network.inputs, network.outputs
    scene = Scene({source.name: ArrayVolume(ARRAY)}, {output.name: ArrayVolume(ARRAY)})
    target = OutputPatch((1, 1, 1), ImageTarget(1, LOGITS.taken(LOSS)))
    sampler = Sampler([scene], {source.name: InputPatch((1, 1, 1))}, {output.name: target}, seed=1)
    losses = objectives(network, LOSS)
    return Validation(Unchanged().forward, sampler, losses, batch, patches, stop)()


def test_a_signal_cuts_it_short_without_a_record() -> None:
    assert cut_short(1, 5, Later()) is None
    assert cut_short(3, 5, Later()) is not None  # it came with the last batch


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 8])
def test_it_is_of_as_many_patches_as_asked_for(batch: int) -> None:
    assert validated(batch) == pytest.approx(validated(5))
