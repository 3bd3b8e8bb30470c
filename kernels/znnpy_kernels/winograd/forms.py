"""Forms of tiles of Winograd's minimal filtering: which axes of a filter are transformed.

An axis of three taps is: F(4, 3), six points for four new voxels (Lavin and Gray 2015, arXiv 1509.09308). Along an
axis of one tap a tile is one voxel thick: one point, one new voxel, and the transform is the identity. A cube is all
three axes, 1 x 3 x 3 and its like two, 3 x 1 x 1 one.
"""

from __future__ import annotations

from collections import namedtuple
from itertools import product
from typing import Any, NamedTuple

Triple = tuple[int, int, int]

# F(4, 3): larger tiles take fewer products, but their transforms lose more bits and do not fit 32 registers.
TAPS, NEW = 3, 4
# As many products as a line of outputs has voxels to see: the least possible (Winograd 1980).
POINTS = TAPS + NEW - 1


class Axis(NamedTuple):
    """Taps of filters along an axis; points and new voxels of a tile."""

    taps: int
    points: int
    new: int


_AXES = {TAPS: Axis(TAPS, POINTS, NEW), 1: Axis(1, 1, 1)}


def _form(taps: Triple) -> Any:
    """Return a named tuple of the numbers of all axes, of a class of its own.

    Numba types it by its class. So intrinsics know the form while they make code (`axes_of`), and helpers that
    kernels give it to find its numbers as constants.
    """
    return form_of(f"Form{name_of(taps)}", tuple(_AXES[number] for number in taps))


def form_of(name: str, axes: tuple[Axis, ...]) -> Any:
    """Return a form of these axes z, y, x, of a class of its own of this name."""
    names = [f"{field}_{axis}" for field in Axis._fields for axis in "zyx"]
    named: Any = namedtuple  # whose names mypy would have to know
    made = named(name, names)
    made.axes = axes
    return made(*(number for numbers in zip(*axes, strict=True) for number in numbers))


def name_of(taps: Triple) -> str:
    """Return what the names of kernels for filters of so many taps end with; of cubes: nothing."""
    return "" if min(taps) == TAPS else "_" + "x".join(map(str, taps))


def axes_of(form: Any) -> tuple[Axis, Axis, Axis]:
    """Return the axes z, y, x of a form's numba type."""
    found: tuple[Axis, Axis, Axis] = form.instance_class.axes
    return found


FORMS: dict[Triple, Any] = {
    (z, y, x): _form((z, y, x)) for z, y, x in product(_AXES, repeat=3) if (z, y, x) != (1, 1, 1)
}
"""By the taps of filters along z, y, x."""
