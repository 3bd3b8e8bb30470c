"""The command `znnpy score`."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from znnpy.cli.global_options import note, suggest
from znnpy.cli.options import AllowFilters, AsJson, filters
from znnpy.cli.preconditions import refuse_ranks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from znnpy.evaluation.objects import Row


def score(
    objects: Annotated[
        str,
        typer.Argument(metavar="OBJECTS", help="What `znnpy segment` wrote: FILE[:DATASET]."),
    ],
    labels: Annotated[str, typer.Option(metavar="FILE[:DATASET]", help="The truth; 0: unknown.")],
    mask: Annotated[
        str | None, typer.Option(metavar="FILE[:DATASET]", help="Voxels that count (not 0).")
    ] = None,
    sections: Annotated[
        bool, typer.Option("--sections", help="Score each section (z) by itself, too.")
    ] = False,
    each: Annotated[
        bool,
        typer.Option(
            "--each", help="Show each object of the truth, too: its splits, merges and best IoU."
        ),
    ] = False,
    classes: Annotated[
        bool,
        typer.Option(
            "--classes", help="Numbers are classes (0 too): Dice, IoU and HD95 of each instead."
        ),
    ] = False,
    as_json: AsJson = False,
    allow_filter: AllowFilters = None,
) -> None:
    """Score objects against labels: adapted Rand error, variation of information, CREMI score, precision over IoU.

    Splits and merges per object: parts beyond the first with a twentieth of its voxels, and other objects with a
    twentieth of one that both share. Volumes lie where their offsets say. Voxels with label 0 do not count; voxels
    without an object count as objects of their own for the first three, and as none for the others.
    """
    import numpy as np

    from znnpy.data.opening import open_volume
    from znnpy.evaluation.objects import (
        beyond_labels,
        read_pair,
        score_classes,
        score_each,
        score_objects,
        score_sections,
        unit_of,
    )

    refuse_ranks("score")
    if classes and (sections or each):
        raise typer.BadParameter("--sections and --each score objects; leave out --classes")
    with ExitStack() as stack:
        opened = [
            stack.enter_context(
                open_volume(name, role="labels", allow_filters=filters(allow_filter))
            )
            for name in (objects, labels, mask)
            if name is not None
        ]
        pair = read_pair(*opened)
        remark = beyond_labels(*opened[:2])
    if remark:
        note(remark)
    if not classes and np.unique(pair.labelled).size <= 2:
        note(f"{labels} has no more than one object there, so that none can be merged with another")
    if classes:
        rows: Mapping[str, Row] = {f"class {n}": row for n, row in score_classes(pair)}
    else:
        rows = {"all": score_objects(pair)}
        if sections:
            rows = {**rows, **{f"z = {z}": row for z, row in score_sections(pair)}}
    own = {f"object {n}": row for n, row in score_each(pair)} if each else {}
    if as_json:
        typer.echo(json.dumps({**rows, **own}, indent=2))
    else:
        _print(f"{objects} against {labels}", rows, unit_of(pair.size))
        if own:
            _print("objects of the truth, largest first", own)
        suggest("view", f"labels={objects}", f"labels={labels}")


def _print(title: str, rows: Mapping[str, Row], unit: str = "") -> None:
    """Print a score a line, or, of several rows, a row a line; `unit` of distances."""
    from rich.table import Table

    from znnpy.cli.tables import console
    from znnpy.evaluation.objects import DISTANCES, TITLES

    table = Table(title=title, title_justify="left")
    table.add_column("")
    if len(rows) == 1:
        (row,) = rows.values()
        table.add_column("", justify="right")
        for name, value in row.items():
            told = f" ({unit})" if name in DISTANCES else ""
            table.add_row(TITLES[name] + told, _text(value))
    else:
        for name in next(iter(rows.values())):
            told = f" ({unit})" if name in DISTANCES else ""
            table.add_column(TITLES[name].strip() + told, justify="right")
        for name, row in rows.items():
            table.add_row(name, *map(_text, row.values()))
    console().print(table)


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value > 1000 else f"{value:.4f}"
