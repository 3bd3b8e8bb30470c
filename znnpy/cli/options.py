"""Options that several commands share, and their parsing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from znnpy.config.models import VolumeSection
    from znnpy.train.start import Which


def new_path(text: str | Path) -> Path:
    """Return a path to write to; wrong usage if it cannot be one of this machine."""
    from znnpy.dataset_path import local_path
    from znnpy.errors import VolumeError

    try:
        return local_path(str(text))
    except VolumeError as error:
        raise typer.BadParameter(str(error)) from error


ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="Config file (YAML).")]
RunPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="Run directory that train or import made.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a value, e.g. training.batch=2; paths count from the current folder.",
    ),
]
ReplaceNonfinite = Annotated[
    bool,
    typer.Option(
        "--replace-nonfinite",
        help="Replace NaN and infinite voxels by 0 after normalisation, instead of refusing them.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", min=1, help="Worker threads (default: all cores)."),
]
MaxMemory = Annotated[
    str | None,
    typer.Option("--max-memory", metavar="SIZE", help="Memory limit, e.g. 8GiB."),
]
AllowFilters = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-filter",
        metavar="NAME",
        help="Read HDF5 of this compression too, e.g. zstd (several times for more).",
    ),
]
SavePlan = Annotated[
    Path | None,
    typer.Option(
        "--save-plan",
        metavar="FILE",
        parser=new_path,
        help="Measure, and write a plan for training.plan.",
    ),
]


CheckpointName = Annotated[
    str,
    typer.Option(
        "--checkpoint",
        metavar="best|latest|N",
        help="Which weights: the best validated, the newest, or those after N iterations.",
    ),
]


def which_checkpoint(text: str) -> Which:
    """Return the checkpoint that --checkpoint names; wrong usage if it names none."""
    named: dict[str, Which] = {"best": "best", "latest": "latest"}
    if text in named:
        return named[text]
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    raise typer.BadParameter(
        f"must be best, latest or a number of iterations; found {text[:40]!r}",
        param_hint="--checkpoint",
    )


def replacing(wanted: bool) -> list[str]:
    """Return the override that --replace-nonfinite stands for."""
    return ["data.replace_nonfinite=true"] if wanted else []


def overrides(
    given: list[str] | None, threads: int | None = None, max_memory: str | None = None
) -> list[str]:
    """Return all overrides of a line; the short options stand for their `run` keys."""
    found = list(given or [])
    if threads is not None:
        found.append(f"run.threads={threads}")
    if max_memory is not None:
        found.append(f"run.max_memory={memory_bytes(max_memory)}")
    return found


def memory_bytes(text: str | None, option: str = "--max-memory") -> int | None:
    """Return the bytes of an option; wrong usage if it is no size."""
    from pydantic import TypeAdapter, ValidationError

    from znnpy.fields import Bytes

    if text is None:
        return None
    try:
        return TypeAdapter(Bytes).validate_python(text)
    except ValidationError as error:
        raise typer.BadParameter(f"{text!r} is not like 8GiB", param_hint=option) from error


def filters(given: list[str] | None) -> tuple[str, ...]:
    """Return the names given by --allow-filter; wrong usage for a name that is no compression filter."""
    from znnpy.data.hdf5.safety import MORE_FILTERS

    for name in given or ():
        if name not in MORE_FILTERS:
            known = ", ".join(MORE_FILTERS)
            raise typer.BadParameter(f"{name!r} is none of {known}", param_hint="--allow-filter")
    return tuple(given or ())


def volume_section(options: Mapping[str, str], **given: Any) -> VolumeSection:
    """Return the volume whose image, labels and mask the `options` give; wrong usage for a name of no file."""
    from pydantic import ValidationError

    from znnpy.config.models import VolumeSection

    try:
        return VolumeSection.model_validate(
            {key: name for key, name in given.items() if name is not None}
        )
    except ValidationError as error:
        first = error.errors()[0]
        option = options[str(first["loc"][0])]
        raise typer.BadParameter(first["msg"], param_hint=option) from error


MOST_VOXELS = 1 << 62
"""Of an object: more than any file holds."""
SIZES = "N|Z,Y,X"


def block_sizes(text: str | None, option: str = "--block") -> tuple[int, int, int] | None:
    """Return the sizes z, y, x that an option gives, one number for a cube; wrong usage if it gives none."""
    from pydantic import TypeAdapter, ValidationError

    from znnpy.fields import Size3, shown

    if text is None:
        return None
    try:
        sizes = [int(part) for part in text.split(",")]
        return TypeAdapter(Size3).validate_python(sizes[0] if len(sizes) == 1 else sizes)
    except (ValueError, ValidationError) as error:
        raise typer.BadParameter(
            f"must be one size or three, z,y,x, such as 64 or 16,64,64; found {shown(text)}",
            param_hint=option,
        ) from error
