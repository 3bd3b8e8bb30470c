"""The description of a task that graphs need: a label for people, its kind, whether it only waits."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Described(Protocol):
    """A task's description as graphs, schedulers and simulators see it; implementations may hold more."""

    @property
    def label(self) -> str:
        """The task's name for people, in messages, traces and reports."""

    @property
    def kind(self) -> str:
        """The sort of work; tasks of one kind are taken to slow each other down alike."""

    @property
    def waits(self) -> bool:
        """Whether the task has no work of its own and only makes others wait."""


class Named(NamedTuple):
    """A description that consists of a name alone."""

    label: str
    kind: str = "task"
    waits: bool = False


BARRIER = Named("barrier", "barrier", waits=True)
"""The description of the tasks that a builder adds between stages."""
