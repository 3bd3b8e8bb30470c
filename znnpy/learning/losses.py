"""The registry of all losses, `LOSSES`, and how configs name them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from znnpy.aliases import canonical
from znnpy.errors import ZnnpyError
from znnpy.fields import shorthand
from znnpy.learning.dice import BCE_DICE, CE_DICE, DICE
from znnpy.learning.loss import Loss, LossKeys
from znnpy.learning.malis import MALIS
from znnpy.learning.voxelwise import BINOMIAL, FOCAL, SOFTMAX, SQUARE
from znnpy.registered_types import registered
from znnpy.registry import Registry

LOSSES = Registry[Loss](
    "loss", (SQUARE, BINOMIAL, SOFTMAX, FOCAL, DICE, BCE_DICE, CE_DICE, MALIS), key="loss"
)


def _any_loss() -> Any:
    keys = reduce(or_, [loss.keys for loss in LOSSES.values()])
    return Annotated[
        Annotated[keys, Field(discriminator="kind")],
        shorthand("kind", str),
    ]


if TYPE_CHECKING:
    AnyLoss = LossKeys
else:  # the keys of one of all losses, or its name alone
    AnyLoss = registered(LOSSES, _any_loss)


Losses = str | LossKeys | Mapping[str, LossKeys]
"""The loss of all outputs, or that of each by the name of its node."""


def loss_of(keys: LossKeys) -> Loss:
    """The loss that keys are of."""
    return LOSSES[keys.kind]


def loss_keys(given: str | LossKeys) -> LossKeys:
    """The keys of a loss, all as they are by default where only its name is given; ZnnpyError if unknown."""
    if isinstance(given, LossKeys):
        return given
    name = canonical("loss", given)
    if name not in LOSSES:
        raise ZnnpyError(f"unknown loss {given!r}; one of {sorted(LOSSES)}")
    return LOSSES[name].keys(kind=name)
