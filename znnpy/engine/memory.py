"""Plans that need more memory than allowed are refused, with a size that would fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from znnpy.data.memory import readable
from znnpy.engine.images import Layout
from znnpy.errors import NetworkError, PlanError
from znnpy.geometry import describe, fit
from znnpy.network.types import Triple


def refuse_above(limit: int, layout: Layout, needs: Callable[[Layout], int]) -> None:
    """PlanError when a layout needs more than `limit` bytes, naming an output shape that would fit."""
    needed = needs(layout)
    if needed <= limit:
        return
    fitting = _fitting(limit, layout, needs)
    hint = f"output_shape {fitting} would fit" if fitting else "no smaller output shape fits either"
    raise PlanError(
        f"output_shape {_shapes(layout)} needs {readable(needed)}, max_memory is "
        f"{readable(limit)}; {hint}"
    )


def _fitting(limit: int, layout: Layout, needs: Callable[[Layout], int]) -> str | None:
    """The largest of some shapes of the same proportions that fits."""
    for percent in range(95, 0, -5):
        shapes = {
            name: _scaled(shape, percent / 100)
            for name, shape in layout.geometry.output_shapes.items()
        }
        try:
            smaller = replace(layout, geometry=fit(layout.network, shapes))
        except NetworkError:
            continue
        if needs(smaller) <= limit:
            return _shapes(smaller)
    return None


def _scaled(shape: Triple, factor: float) -> Triple:
    z, y, x = (max(1, int(size * factor)) for size in shape)
    return (z, y, x)


def _shapes(layout: Layout) -> str:
    return ", ".join(describe(shape) for shape in layout.geometry.output_shapes.values())
