"""Which of a rank's tasks come before all others: other ranks wait for them, which no path of its own graph shows."""

from __future__ import annotations

from znnpy.distributed.strategies import Strategy
from znnpy.engine.tasks.identity import Identity, Part, Pass

_FOR_OTHERS = frozenset({Part.POST, Part.RANKS, Part.COPIED, Part.RECEIVED})
"""What posts a message, or brings on what the next one carries."""
_AWAITED = frozenset({Pass.WEIGHT, Pass.UPDATE})
"""What ranks at the other end of a tree wait for beside it."""


def hastened(what: Identity, strategy: Strategy, workers: int) -> bool:
    """Whether a task of an update comes before others on a rank of so many workers, in training and simulated.

    Where rank 0 hands out weights and a rank has one worker, gradients then leave while the backward pass goes on
    here, and weights while it does elsewhere. Several workers would all leave the critical path for that.
    """
    awaited = strategy.weights_down and workers == 1
    return what.part in _FOR_OTHERS or (awaited and what.serves in _AWAITED)
