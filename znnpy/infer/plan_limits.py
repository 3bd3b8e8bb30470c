"""What a config sets to the plans of its updates: the file of a pinned one, and the memory that they may take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from znnpy.config.models import Config
from znnpy.data.process_memory import readable
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.limits import TooLargeError, copied_bytes
from znnpy.network.types import Network
from znnpy.plan import fftw
from znnpy.plan.record import read_plan


@contextmanager
def plan_room(config: Config, network: Network) -> Iterator[int | None]:
    """Yield the bytes that run.max_memory leaves to an update's plan, beside the copy for checkpoints.

    None without a limit. A PlanError for lack of room says both.
    """
    most = config.run.max_memory
    if most is None:
        yield None
        return
    saved = saved_bytes(config, network)
    copy = "the copy of parameters and states that a checkpoint is written from"
    if saved >= most:
        raise TooLargeError(f"{copy} needs {readable(saved)};", readable(most))
    try:
        yield most - saved
    except TooLargeError as error:
        of = f"{readable(most)}, of which {error.has} are left beside {copy}"
        has = error.has if saved < most / 100 else of
        raise TooLargeError(error.needs, has, error.hint) from None


def saved_bytes(config: Config, network: Network) -> int:
    """Return the bytes of the copy that a checkpoint is written from."""
    return copied_bytes(network, len(Optimizer.trained(config.training).state_names))


def pinned_plan(config: Config, network: Network) -> Mapping[str, Any] | None:
    """Return the layers of the file that `training.plan` names, its FFTW wisdom pinned in this process; or None.

    Raises PlanError when the file holds no plan of the network.
    """
    if config.training.plan is None:
        return None
    saved = read_plan(config.training.plan, network)
    # Before the model plans its FFTs.
    if saved.fftw is not None:
        fftw.pin(saved.fftw)
    return saved.layers
