"""Memory asked for, in words: parsing is the config's, refusing is the engine's."""

from __future__ import annotations

from znnpy.errors import PlanError

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def readable(size: float) -> str:
    """A number of bytes for people: 1.5 GiB."""
    unit = 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.4g} {UNITS[unit]}"


def refuse_above(limit: int | None, needed: int, output_shape: object, smaller: object) -> None:
    """PlanError when the plan needs more than the limit, naming an output size that would fit."""
    if limit is not None and needed > limit:
        hint = f"output_shape {smaller} would fit" if smaller else "no smaller output shape fits"
        raise PlanError(
            f"output_shape {output_shape} needs {readable(needed)}, max_memory is "
            f"{readable(limit)}; {hint}"
        )
