"""What a graph is told of what its tasks are: enough for messages, and to tell work from waiting."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Described(Protocol):
    """What graphs, schedulers and simulators see of a task; who declares it may know more of it."""

    @property
    def label(self) -> str:
        """For people, in messages, traces and reports."""

    @property
    def kind(self) -> str:
        """The sort of work: tasks of one kind slow each other down alike."""

    @property
    def waits(self) -> bool:
        """Whether it has no work of its own and only makes others wait."""


class Named(NamedTuple):
    """A task of which there is no more to say."""

    label: str
    kind: str = "task"
    waits: bool = False


BARRIER = Named("barrier", "barrier", waits=True)
"""What a builder adds between stages."""
