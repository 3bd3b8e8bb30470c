"""Tasks that transform tiles along their first axis alone, where other tasks transform the planes of each.

So tiles that are fewer than the workers have more tasks (docs/design/spectral.md, *Planes and columns apart*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.spectral.tile_columns import (
    COLUMN_FLOATS,
    conjugate_columns,
    tile_columns,
    tile_columns_back,
)

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Region
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity
from znnpy.plan.partition import evenly

LEAST_PLANES = 2
"""Planes of a tile that one task takes at least: they share what tells where its points lie."""


class End(NamedTuple):
    """Where columns lie: address of the first, floats from point to point, column to column, vector to vector."""

    address: int
    point: int
    column: int
    vector: int

    def words(self, name: str) -> dict[str, int]:
        """Return the words of this end of `tile_columns`."""
        return {
            name: self.address,
            f"{name}_point": self.point,
            f"{name}_column": self.column,
            f"{name}_vector": self.vector,
        }


class Columns(NamedTuple):
    """Columns of `points` of some `vectors`; `parts`: floats from real to imaginary parts in spectra."""

    points: int
    columns: int
    vectors: int
    spectra: End
    planes: End
    parts: int


def emit_columns_to(
    step: Step,
    build: Build,
    it: Columns,
    cuts: int,
    what: Identity,
    seconds: float,
    planes: Region,
    spectra: Region,
    *,
    conjugate: bool = False,
) -> None:
    """Declare the tasks from planes to spectra, which may have the same place; `seconds`: of all of them."""
    words = it.planes.words("source") | it.spectra.words("target")
    kernel, ranges = conjugate_columns if conjugate else tile_columns, evenly(it.columns, cuts)
    _emit(step, build, kernel, words, it, ranges, what, seconds, planes, spectra)


def emit_columns_from(
    step: Step,
    build: Build,
    it: Columns,
    what: Identity,
    seconds: float,
    spectra: Region,
    planes: Region,
) -> None:
    """Declare the tasks from spectra back to planes; both may have the same place."""
    words = it.spectra.words("source") | it.planes.words("target")
    ranges = build.layout.grain.ranges(it.columns, seconds)
    _emit(step, build, tile_columns_back, words, it, ranges, what, seconds, spectra, planes)


def _emit(
    step: Step,
    build: Build,
    kernel: Kernel,
    words: dict[str, int],
    it: Columns,
    cuts: Sequence[tuple[int, int]],
    what: Identity,
    seconds: float,
    source: Region,
    target: Region,
) -> None:
    scratch = build.worker_scratch(COLUMN_FLOATS)
    for strand, (low, high) in enumerate(cuts):
        step.add(
            kernel,
            {
                **words,
                "parts": it.parts,
                "points": it.points,
                "vectors": it.vectors,
                "column0": low,
                "column1": high,
                **scratch,
            },
            what=what,
            cost=seconds * (high - low) / it.columns,
            divides=True,
            # Where both are one buffer, a task replaces no more than what it has read.
            reads=[source.as_strand(strand) if source.key == target.key else source],
            writes=[target.as_strand(strand)],
        )
