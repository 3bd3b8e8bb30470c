"""Transforms tiles along their first axis alone, between spectra and tiles that are transformed along their planes.

What transforms of whole tiles do in one go, for tiles that are too few for the workers: others transform the planes.
A column is what tiles have at one frequency of their planes. Both ends may be the same memory, where points have the
same places in them.

    tile_columns            forward; `parts` of the target
    conjugate_columns       forward to conjugate spectra, whose parts are LANES apart
    tile_columns_back       back, not normalised; `parts` of the source

Argument words. Addresses in bytes; strides in floats; all else counts.

    source, source_point, source_column, source_vector      first point of the first column of the first vector; strides
    target, target_point, target_column, target_vector      the same of what is written
    parts                       from real to imaginary parts in spectra; they are LANES apart at the other end
    points                      of a column
    vectors                     of tiles and channels
    column0, column1            of this task
    scratch, scratch_worker     64-byte aligned; worker w owns COLUMN_FLOATS floats from w * scratch_worker on

Tasks over disjoint columns may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.fft.codelets import (
    SPARE_BYTES,
    End,
    Lines,
    apart_backward_lines,
    apart_forward_lines,
    turned_forward_lines,
)
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.spectral.tile_transforms import COLUMNS_AHEAD, prepare

AT = words(
    "source source_point source_column source_vector target target_point target_column "
    "target_vector parts points vectors column0 column1 scratch scratch_worker",
)
COLUMN_FLOATS = SPARE_BYTES // 4


@inlined
def _end(place: int, point: int, column: int, vector: int, first: int) -> Any:
    """The columns from the first of a task on; strides in floats."""
    return End(place + 4 * first * column, 4 * point, 4 * vector, 4 * column)


@inlined
def _behind(end: End) -> Any:
    """What will be wanted soon, with the steps of this end."""
    return End(end.place + COLUMNS_AHEAD * end.group, end.step, end.line, end.group)


@inlined
def _columns(args: Any, worker: int, back: int, option: int) -> Any:
    """Lines of all columns of a task, vector by vector in each: neighbours lie together in spectra."""
    first = args[AT.column0]
    source = _end(
        args[AT.source],
        args[AT.source_point],
        args[AT.source_column],
        args[AT.source_vector],
        first,
    )
    target = _end(
        args[AT.target],
        args[AT.target_point],
        args[AT.target_column],
        args[AT.target_vector],
        first,
    )
    scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
    prepare(scratch, 0)
    return Lines(
        source=source,
        target=target,
        ahead=_behind(source if back else target),
        lines=args[AT.vectors],
        groups=args[AT.column1] - first,
        first=0,
        count=0,
        spare=scratch,
        option=option,
        parts=4 * args[AT.parts],
        ahead_parts=4 * args[AT.parts],
    )


@kernel(AT)
def tile_columns(args: Any, worker: int) -> None:
    """Spectra of half transformed tiles. Words: see the module."""
    apart_forward_lines(args[AT.points], _columns(args, worker, 0, 0), 1.0)


@kernel(AT)
def conjugate_columns(args: Any, worker: int) -> None:
    """Conjugate spectra of half transformed tiles, conjugate as well. Words: see the module."""
    turned_forward_lines(args[AT.points], _columns(args, worker, 0, 1), 1.0)


@kernel(AT)
def tile_columns_back(args: Any, worker: int) -> None:
    """Half transformed tiles of spectra. Words: see the module."""
    apart_backward_lines(args[AT.points], _columns(args, worker, 1, 0), 1.0)
