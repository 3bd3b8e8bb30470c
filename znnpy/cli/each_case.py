"""Cases of one command, one after the other: what is wrong with one stops no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from znnpy.cli.global_options import note
from znnpy.errors import PlanError, PredictionError, ShapeError, VolumeError, WriteError

One = TypeVar("One")
NAMED = 5  # cases that the last error names, at most


def each_case(
    cases: Sequence[One],
    predict: Callable[[One], None],
    name: Callable[[One], str],
    *,
    several: bool,
) -> None:
    """Call `predict` for each case; of several, one whose image is damaged, unfit or too large, or of which the network
    makes no numbers, is told and left out.

    VolumeError at the end where some were left out. Whatever else is raised ends all: an output that cannot be written
    would fail the next cases, too.
    """
    missed = list[str]()
    for case in cases:
        try:
            predict(case)
        except WriteError:
            raise
        except (VolumeError, PlanError, ShapeError, PredictionError, MemoryError) as error:
            if not several:
                raise
            # That of NumPy names no image, nor does a network.
            unnamed = isinstance(error, MemoryError | PredictionError)
            place = f"{name(case)}: " if unnamed else ""
            note(f"{place}{error}")
            missed.append(name(case))
    if missed:
        more = f" and {len(missed) - NAMED} more" if len(missed) > NAMED else ""
        raise VolumeError(
            f"{len(missed)} of {len(cases)} cases could not be predicted: {', '.join(missed[:NAMED])}{more}; "
            "the same command tries these again"
        )
