"""Geometry of prediction: output voxels of a volume (`Field`), regions, and the input with halo that a region needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from znnpy.data.volume import Triple, Volume
from znnpy.errors import ShapeError
from znnpy.geometry.shape_inference import Geometry, fit
from znnpy.network.types import Network

ONE: Triple = (1, 1, 1)


@dataclass(frozen=True)
class Field:
    """The output voxels of a whole volume.

    Output voxel i (z, y, x) shows input voxel `first + i * stride` of the first input; there are
    `shape` of them. `corners` are the positions of the inputs' first voxels in that frame.
    """

    first: Triple
    shape: Triple
    stride: Triple
    corners: Mapping[str, Triple]


@dataclass(frozen=True)
class Region:
    """Voxels lower <= (z, y, x) < upper."""

    lower: Triple
    upper: Triple

    @property
    def shape(self) -> Triple:
        """The number of voxels along z, y, x."""
        return sub(self.upper, self.lower)

    @property
    def voxels(self) -> int:
        """The number of voxels."""
        return math.prod(self.shape)

    def moved(self, by: Triple) -> Region:
        """Return the region moved by so many voxels."""
        return Region(add(self.lower, by), add(self.upper, by))

    def within(self, other: Region) -> Region:
        """Return the intersection; its shape has a number below 1 when that is empty."""
        lower = triple(max(pair) for pair in zip(self.lower, other.lower, strict=True))
        return Region(lower, triple(min(p) for p in zip(self.upper, other.upper, strict=True)))

    def slices(self, origin: Triple = (0, 0, 0)) -> tuple[slice, slice, slice]:
        """Return the index of these voxels in an array whose first voxel is `origin`."""
        z, y, x = (
            slice(a - o, b - o) for a, b, o in zip(self.lower, self.upper, origin, strict=True)
        )
        return z, y, x


def whole_field(
    network: Network,
    images: Mapping[str, Volume],
    corners: Mapping[str, Triple],
    mirror: bool,
    run: Geometry | None = None,
    unit: Triple | None = None,
) -> Field:
    """Return what can be predicted of a volume: all voxels with `mirror`, else those that see no border.

    `run`: shapes of one run of the network, for any patch; of one output voxel unless given. Raises ShapeError
    when the volume is smaller than what one voxel sees of a run.
    """
    run = run or fit(network, ONE)
    stride = run.output_stride(network.outputs[0].name)
    names = [node.name for node in network.inputs]
    views = {name: _view(run, name, stride) for name in names}
    if mirror:
        extent = images[names[0]].extent
        first, last = (0, 0, 0), triple(n - 1 for n in extent)
    else:
        # The first and last voxel that each input alone would allow; the field is where all agree.
        lows = [add(corners[name], run.output_offset(name)) for name in names]
        ends = [sub(images[name].extent, views[name]) for name in names]
        highs = [add(*pair) for pair in zip(lows, ends, strict=True)]
        first = triple(max(axis) for axis in zip(*lows, strict=True))
        last = triple(min(axis) for axis in zip(*highs, strict=True))
    shape = triple((b - a) // step + 1 for a, b, step in zip(first, last, stride, strict=True))
    if not mirror:
        # Whole periods behind the first run: what a further run could not fill is left out.
        units = zip(shape, made(run), unit or lattice_unit(run), strict=True)
        shape = triple(one + (n - one) // step * step for n, one, step in units)
    if min(shape) < 1:
        name = names[0]
        raise ShapeError(
            f"{images[name].name} has {images[name].extent} voxels (z, y, x), less than the "
            f"receptive field (field of view) {views[name]}; use border mirror, or a larger volume"
        )
    return Field(first, shape, stride, corners)


def _view(run: Geometry, name: str, stride: Triple) -> Triple:
    """Return how many voxels of an input a run takes for its first output voxel."""
    sizes = zip(run.input_shapes[name], made(run), stride, strict=True)
    return triple(n - (count - 1) * step for n, count, step in sizes)


def middle(field: Field, most: int, unit: Triple = ONE) -> Field:
    """Return a field of at most `most` voxels around the middle of another, cut from its longest axes.

    It begins whole `unit`s of voxels after the other.
    """
    shape = list(field.shape)
    while math.prod(shape) > most:
        axis = shape.index(max(shape))
        # A sixteenth at a time, from the longest axis: the field stays near a cube and loses little
        # more than it must.
        shape[axis] = shape[axis] * 15 // 16
    steps = zip(field.first, field.shape, shape, unit, field.stride, strict=True)
    first = triple(a + (n - part) // 2 // one * one * step for a, n, part, one, step in steps)
    return replace(field, first=first, shape=triple(shape))


def region_of_interest(field: Field, roi: Region | None) -> Region:
    """Return the output voxels whose positions lie in `roi` (voxels of the first input); all without one.

    Raises ShapeError when there are none.
    """
    whole = Region((0, 0, 0), field.shape)
    if roi is None:
        return whole
    steps = list(zip(roi.lower, roi.upper, field.first, field.stride, strict=True))
    asked = Region(
        # Rounded up: the first output voxel at or behind the border; of the upper end, the first
        # one beyond.
        triple(-((first - a) // step) for a, _, first, step in steps),
        triple(-((first - b) // step) for _, b, first, step in steps),
    )
    found = asked.within(whole)
    if min(found.shape) < 1:
        last = [a + (n - 1) * step for a, n, step in zip(*_axes(field), strict=True)]
        raise ShapeError(
            f"--roi {roi.lower} to {roi.upper} (z, y, x) holds no output voxel; they lie from "
            f"{field.first} to {tuple(last)}"
        )
    return found


def input_region(
    field: Field, geometry: Geometry, name: str, region: Region, size: Triple | None = None
) -> Region:
    """Return the input voxels, halo included, that runs of a network need for an output region; may leave the volume.

    Counted in the input volume's own voxels. `geometry` is that of one run. The first run begins where the output
    `region` does, the last one lies `size` (default: the run's output shape) before its end.
    """
    steps = zip(field.first, region.lower, field.stride, strict=True)
    place = triple(a + i * step for a, i, step in steps)
    # From output voxel to the place of its run's first input voxel, in that input's own voxels.
    lower = sub(sub(place, geometry.output_offset(name)), field.corners[name])
    sizes = zip(region.shape, size or made(geometry), field.stride, strict=True)
    beyond = triple((n - one) * step for n, one, step in sizes)
    return Region(lower, add(lower, add(beyond, geometry.input_shapes[name])))


def lattice_unit(geometry: Geometry) -> Triple:
    """Return the step in output voxels by which runs may be moved and still see pooling alike: a period of pooling."""
    output = next(iter(geometry.output_shapes))
    periods = zip(*geometry.periods.values(), strict=True)
    steps = zip(periods, geometry.output_stride(output), strict=True)
    # Of several inputs the shift must suit all.
    return triple(math.lcm(*axis) // step for axis, step in steps)


def made(geometry: Geometry) -> Triple:
    """Return the output voxels of one run."""
    return next(iter(geometry.output_shapes.values()))


def cuts(region: Region, block: Triple, phase: Triple, axis: int) -> list[tuple[int, int]]:
    """Return the ends of a region's blocks along an axis; their grid begins `phase` voxels before the region."""
    low, high, step = region.lower[axis], region.upper[axis], block[axis]
    places = range(low - phase[axis] % step, high, step)
    return [(max(low, place), min(place + step, high)) for place in places]


def triple(values: Iterable[int]) -> Triple:
    """Return three numbers as z, y, x."""
    z, y, x = values
    return (z, y, x)


def add(a: Triple, b: Triple) -> Triple:
    """Return the sum of two triples, axis by axis."""
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def sub(a: Triple, b: Triple) -> Triple:
    """Return the difference of two triples, axis by axis."""
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


def _axes(field: Field) -> tuple[Triple, Triple, Triple]:
    return field.first, field.shape, field.stride
