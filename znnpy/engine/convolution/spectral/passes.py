"""The passes of tiled spectral convolution: groups of tiles are transformed, multiplied, and transformed back."""

from __future__ import annotations

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.simd.rows import zero_rows

from znnpy.engine.convolution.padding_taps import clear_unmet
from znnpy.engine.convolution.spectral.buffers import (
    against,
    along,
    by_columns,
    edge_spectra,
    grouped_spectra,
    is_few,
    is_transposed,
    phases_of_edge,
    ring_slot,
    source_spectra,
    spectra_of,
    tile_of,
    tiling_of,
)
from znnpy.engine.convolution.spectral.columns import emit_column_gradients, emit_column_products
from znnpy.engine.convolution.spectral.few_channels import (
    emit_few_column_gradients,
    emit_few_column_products,
    emit_few_products,
    emit_few_weight_products,
)
from znnpy.engine.convolution.spectral.few_source import FewSpectra, few_source
from znnpy.engine.convolution.spectral.filter_gradients import emit_gradients, gradients_of
from znnpy.engine.convolution.spectral.filters import filters_for, shares_filters
from znnpy.engine.convolution.spectral.products import (
    emit_backward_products,
    emit_products,
    emit_weight_products,
)
from znnpy.engine.convolution.spectral.tile_arguments import ORIGIN
from znnpy.engine.convolution.spectral.transforms import emit_images, emit_spectra
from znnpy.engine.convolution.tiles import PlaneSpectra, TileSpectra, Tiling, Window
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.polyphase import Views, phased
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.fusion import applied_forward
from znnpy.engine.tasks.step import Step, counts, plane_ranges, rows_of
from znnpy.engine.tasks.task_identity import PASS_OF, Identity, Part, Pass
from znnpy.layers.types import Sides
from znnpy.network.types import Edge
from znnpy.plan import PassName
from znnpy.plan.cost import MEMORY_RATE
from znnpy.plan.polyphase import Phases
from znnpy.plan.tiles import lattices, leaves_cache, saves_lanes, small_group


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare the forward pass of an edge, into its contribution to the target."""
    target = build.maps.contributions[edge.name]
    if is_transposed(edge):
        source, sides = build.value(edge.source), build.layout.padding(edge)
        _spread(step, build, edge, source, target, sides)
    else:
        _correlate(step, build, edge, _phased(build, edge, build.seen(edge)), target)


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the data gradient of an edge, into its contribution to the source."""
    if is_transposed(edge):
        seen = _framed(build, edge, gradient)
        # Against a transposed convolution is along the filters it reverses.
        _correlate(step, build, edge, seen, build.maps.backward[edge.name])
    elif not _together(build, edge):  # else the weight gradient has made it
        _spread(step, build, edge, gradient, build.back(edge), build.layout.cropped(edge))


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the gradient of an edge's filters; a transposed edge's are those of the convolution it reverses."""
    if is_transposed(edge):
        _multiply(step, build, edge, _framed(build, edge, gradient), build.value(edge.source))
    else:
        _multiply(step, build, edge, _phased(build, edge, build.seen(edge)), gradient)


def _phased(build: Build, edge: Edge, images: Tensor) -> Views:
    return phased(images, phases_of_edge(build, edge))


def _framed(build: Build, edge: Edge, gradient: Tensor) -> Views:
    """Return a transposed convolution's gradient, with zeros for what is left out of its images."""
    return _phased(build, edge, gradient.framed(build.layout.padding(edge)))


def _correlate(step: Step, build: Build, edge: Edge, source: Views, target: Tensor) -> None:
    """Declare the correlation of tiles with the filters."""
    which = along(edge)
    serves = PASS_OF[which]
    x = _source(step, build, edge, source, which)
    y = _like(x, target)
    w = filters_for(step, build, edge, backward=False)
    # Group by group through all stages, so that spectra are used while a cache holds them.
    for group in range(y.groups):
        if isinstance(x, TileSpectra):
            _emit_source(step, build, edge, x, source, group, which)
        y.places[group] = ring_slot(step, build, edge, serves, Part.PRODUCTS, y, group)
        if isinstance(x, PlaneSpectra) and isinstance(y, PlaneSpectra):
            emit_column_products(step, build, edge, x, w, y, group, serves)
        elif isinstance(x, FewSpectra) and isinstance(y, PlaneSpectra):
            emit_few_column_products(step, build, edge, x, w, y, group)
        elif isinstance(x, TileSpectra):
            emit_products(step, build, edge, x, w, y, group, serves)
        else:
            emit_few_products(step, build, edge, x, w, y, group)
        what = Identity(edge.name, serves, Part.INVERSE)
        # A transposed edge's tiles are its data gradient, where the target's function has no place.
        node = None if is_transposed(edge) else applied_forward(build.layout, edge)
        emit_images(step, build, y, target, x.tiling.new, group, what, node)


def _multiply(step: Step, build: Build, edge: Edge, source: Views, gradient: Tensor) -> None:
    """Declare products of source and gradient tiles summed over all tiles, then transformed back to filters.

    A convolution's data gradient goes with it where both take the same tiles of the gradient.
    """
    x = _source(step, build, edge, source, "weight")
    dy = _like(x, gradient)
    w = gradients_of(build, edge)
    back = None
    if _together(build, edge):
        back = _Back(step, build, edge, dy, build.back(edge), build.layout.cropped(edge))
    # Sums over groups are in the order of the groups: each range of frequencies waits for the group
    # before.
    for group in range(dy.groups):
        if isinstance(x, TileSpectra):
            _emit_source(step, build, edge, x, source, group, "weight")
        _emit_gradient(step, build, edge, gradient, dy, group, Pass.WEIGHT)
        if isinstance(x, PlaneSpectra) and isinstance(dy, PlaneSpectra):
            emit_column_gradients(
                step, build, edge, x, w, dy, back.filters if back else None, group
            )
            if back:
                back.emit_images(group)
            continue
        if isinstance(x, FewSpectra) and isinstance(dy, PlaneSpectra):
            emit_few_column_gradients(step, build, edge, x, w, dy, group)
        elif isinstance(x, TileSpectra):
            emit_weight_products(step, build, edge, x, w, dy, group)
        else:
            emit_few_weight_products(step, build, edge, x, w, dy, group)
        if back:
            back.emit(group)
    # Only now are the sums over all tiles complete.
    emit_gradients(step, build, edge, w)
    clear_unmet(step, build, edge)


def _spread(
    step: Step, build: Build, edge: Edge, gradient: Tensor, image: Tensor, cropped: Sides
) -> None:
    """Declare the full correlation of tiles with the filters, leaving out what is `cropped`."""
    which = against(edge)
    tiling = tiling_of(build, edge, which)
    dy = edge_spectra(build, edge, tiling, gradient)
    back = _Back(step, build, edge, dy, image, cropped)
    for group in range(dy.groups):
        _emit_gradient(step, build, edge, gradient, dy, group, PASS_OF[which])
        back.emit(group)


def _together(build: Build, edge: Edge) -> bool:
    """Return whether weight and data gradient use the same spectra of the target's gradient."""
    if is_transposed(edge) or not edge.learn:
        return False
    layer = build.layout.plan.layers[edge.name]
    needed = edge.name in build.maps.backward
    same = layer.method("weight") == layer.method("gradient")
    # By columns the kernel multiplies with the forward pass's filters; other ones would need a pass
    # of their own.
    if not needed or not same or shares_filters(build, edge):
        return needed and same
    return not by_columns(build, edge, tile_of(build, edge, "weight"))


class _Back:
    """From spectra of the target's gradient to the source's: products, and sums of tiles that overlap.

    A tile gives all its points, of which the last ones lie in the tiles behind it. Half transformed tiles
    of the source's gradient take the place of the target's.
    """

    def __init__(
        self,
        step: Step,
        build: Build,
        edge: Edge,
        dy: TileSpectra,
        image: Tensor,
        cropped: Sides,
    ) -> None:
        self.step, self.build, self.edge, self.dy = step, build, edge, dy
        self.serves = PASS_OF[against(edge)]
        self.target = _phased(build, edge, image.framed(cropped))
        # The same groups of tiles at both ends, as products go tile by tile.
        self.dx = _like(dy, self.target)
        self.filters = filters_for(step, build, edge, backward=True)
        # Before all tiles: these store or add, and never touch the voxels that only zeros reach.
        if not _covers(dy.tiling, phases_of_edge(build, edge), image, cropped):
            _emit_zeros(step, image, Identity(edge.name, self.serves, Part.ZEROS))

    def emit(self, group: int) -> None:
        """Declare the tasks of a group."""
        step, build, edge, dy, dx = self.step, self.build, self.edge, self.dy, self.dx
        if isinstance(dy, PlaneSpectra) and isinstance(dx, PlaneSpectra):
            dx.places[group] = dy.places[group]
            emit_column_products(step, build, edge, dy, self.filters, dx, group, self.serves)
        else:
            dx.places[group] = ring_slot(step, build, edge, self.serves, Part.PRODUCTS, dx, group)
            if shares_filters(build, edge):
                emit_backward_products(step, build, edge, dy, self.filters, dx, group, self.serves)
            else:
                emit_products(step, build, edge, dy, self.filters, dx, group, self.serves)
        self.emit_images(group)

    def emit_images(self, group: int) -> None:
        """Declare the way back of a group from the products."""
        dx, what = self.dx, Identity(self.edge.name, self.serves, Part.INVERSE)
        dx.places[group] = dx.places.get(group, self.dy.places[group])
        emit_images(self.step, self.build, dx, self.target, dx.tiling.tile, group, what)


def _covers(tiling: Tiling, phases: Phases, image: Tensor, cropped: Sides) -> bool:
    """Return whether every voxel of the images is a point of a tile: else some meet no tap, or lie between lattices."""
    return all(
        _points(tiling, phases, axis).issuperset(range(before, before + image.shape[axis]))
        for axis, (before, _) in enumerate(cropped)
    )


def _points(tiling: Tiling, phases: Phases, axis: int) -> set[int]:
    """Return the voxels under the points of all tiles along an axis."""
    apart, new = tiling.dilation[axis], tiling.new[axis]
    return {
        first * phases.apart[axis] + (lattice + point * apart) * phases.stride[axis]
        for lattice, inside in enumerate(lattices(tiling.extents[axis], apart))
        for point in range(-(-inside // new) * new + tiling.overlap[axis])
        for first in range(phases.counts[axis])
    }


def _emit_zeros(step: Step, target: Tensor, what: Identity) -> None:
    """Declare zeros everywhere: no tile covers lattices that lie between the target's voxels."""
    for batch in range(target.batch):
        for block in range(target.blocks):
            for low, high in plane_ranges(target, 1):
                step.add(
                    zero_rows,
                    {
                        **rows_of(target, "target", batch, block, low),
                        **counts(target, low, high),
                        "length": target.row,
                    },
                    what=what,
                    cost=target.plane * (high - low) * 4 / MEMORY_RATE,
                    reads=[],
                    writes=[target.region(batch, block, low, high)],
                )


def _emit_gradient(
    step: Step,
    build: Build,
    edge: Edge,
    gradient: Tensor,
    dy: TileSpectra,
    group: int,
    serves: Pass,
) -> None:
    """Declare the transforms of a group of the gradient's tiles, with zeros behind their new points."""
    room = dy
    if isinstance(dy, PlaneSpectra) and edge.name in build.maps.backward:
        # The source's gradient takes the place of the target's, so the room is that of the larger
        # one.
        room = max(dy, _like(dy, build.back(edge)), key=lambda kept: kept.floats)
    dy.places[group] = ring_slot(step, build, edge, serves, Part.OUTPUT_TILES, room, group)
    # Of a transposed convolution these are the source's, which each pass transforms for itself.
    part = Part.TILES if is_transposed(edge) else Part.OUTPUT_TILES
    window, what = Window(ORIGIN, dy.tiling.new), Identity(edge.name, serves, part)
    emit_spectra(step, build, dy, gradient, window, group, what)


def _source(
    step: Step, build: Build, edge: Edge, source: Views, which: PassName
) -> TileSpectra | FewSpectra:
    """Return spectra of the source's tiles: those of few images all at once, others group by group."""
    if is_few(build, edge):
        return few_source(step, build, edge, which)
    return source_spectra(build, edge, source, which)


def _like(x: TileSpectra | FewSpectra, end: Views) -> TileSpectra:
    """Return room for the other end's spectra in products with `x`, or for those of the products."""
    if isinstance(x, PlaneSpectra):
        return PlaneSpectra(x.tiling, end.channels, x.most)
    if isinstance(x, TileSpectra):
        return spectra_of(x.tiling, end, x.most)
    # Products take tiles across blocks, so groups are of the usual size.
    if x.across:
        return grouped_spectra(x.tiling, end)
    packed = end.lanes == LANES and saves_lanes(end.channels, LANES)
    if packed and leaves_cache(x.tiling.tile):
        return x.planes(end.channels)
    return spectra_of(x.tiling, end, small_group(x.tiling.tile, x.tiling.tiles, end.channels))


def _emit_source(
    step: Step,
    build: Build,
    edge: Edge,
    x: TileSpectra,
    source: Views,
    group: int,
    which: PassName,
) -> None:
    """Declare the transforms of a group of the source's tiles; kept ones once a step for all that ask."""
    if group not in x.places:
        x.places[group] = ring_slot(step, build, edge, PASS_OF[which], Part.TILES, x, group)
        what = Identity(edge.name, PASS_OF[which], Part.TILES)
    elif step.once(x.places[group]):
        what = Identity(edge.source, Pass.FORWARD, Part.KEPT_TILES)
    else:
        return
    emit_spectra(step, build, x, source, Window(ORIGIN, x.tiling.tile), group, what)
