"""The three passes of an edge: transforms of a group of tiles, its products, and back."""

from __future__ import annotations

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.simd.rows import zero_rows

from znnpy.engine.convolution.spectral.buffers import (
    by_columns,
    edge_spectra,
    ring_slot,
    source_spectra,
    spectra_of,
    tile_of,
    tiling_of,
)
from znnpy.engine.convolution.spectral.columns import emit_column_gradients, emit_column_products
from znnpy.engine.convolution.spectral.few import (
    FewSpectra,
    emit_few_column_gradients,
    emit_few_column_products,
    emit_few_products,
    emit_few_weight_products,
    few_source,
    is_few,
)
from znnpy.engine.convolution.spectral.filters import (
    emit_gradients,
    filters_for,
    gradients_of,
    shares_filters,
)
from znnpy.engine.convolution.spectral.products import (
    emit_backward_products,
    emit_products,
    emit_weight_products,
)
from znnpy.engine.convolution.spectral.transforms import emit_images, emit_spectra
from znnpy.engine.convolution.spectral.words import ORIGIN
from znnpy.engine.convolution.tiles import PlaneSpectra, TileSpectra, Window
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.fusion import applied_forward
from znnpy.engine.tasks.identity import PASS_OF, Identity, Part, Pass
from znnpy.engine.tasks.step import Step, counts, plane_ranges, rows_of
from znnpy.network.types import Edge
from znnpy.plan import PassName
from znnpy.plan.cost import MEMORY_RATE
from znnpy.plan.tiles import leaves_cache, saves_lanes, small_group


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Correlation of the source's tiles with the filters, into the edge's contribution."""
    target = build.images.contributions[edge.name]
    x = _source(step, build, edge, "forward")
    y = _like(x, target)
    w = filters_for(step, build, edge, backward=False)
    for group in range(y.groups):
        if isinstance(x, TileSpectra):
            _emit_source(step, build, edge, x, group, "forward")
        y.places[group] = ring_slot(step, build, edge, Pass.FORWARD, Part.PRODUCTS, y, group)
        if isinstance(x, PlaneSpectra) and isinstance(y, PlaneSpectra):
            emit_column_products(step, build, edge, x, w, y, group, Pass.FORWARD)
        elif isinstance(x, FewSpectra) and isinstance(y, PlaneSpectra):
            emit_few_column_products(step, build, edge, x, w, y, group)
        elif isinstance(x, TileSpectra):
            emit_products(step, edge, x, w, y, group, Pass.FORWARD)
        else:
            emit_few_products(step, edge, x, w, y, group)
        what, node = (
            Identity(edge.name, Pass.FORWARD, Part.INVERSE),
            applied_forward(build.layout, edge),
        )
        emit_images(step, build, y, target, x.tiling.new, group, what, node)


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Products of source and gradient tiles summed over all tiles, then back to filters.

    The data gradient goes with it where both take the same tiles of the gradient.
    """
    x = _source(step, build, edge, "weight")
    dy = _like(x, gradient)
    w = gradients_of(build, edge)
    back = _Back(step, build, edge, dy) if _together(build, edge) else None
    for group in range(dy.groups):
        if isinstance(x, TileSpectra):
            _emit_source(step, build, edge, x, group, "weight")
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
            emit_weight_products(step, edge, x, w, dy, group)
        else:
            emit_few_weight_products(step, edge, x, w, dy, group)
        if back:
            back.emit(group)
    emit_gradients(step, build, edge, w)


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Full correlation of the gradient's tiles with the filters, into what goes back to the source."""
    if _together(build, edge):
        return  # the weight gradient has made it
    tiling = tiling_of(build, edge, "gradient")
    dy = edge_spectra(build, edge, tiling, gradient)
    back = _Back(step, build, edge, dy)
    for group in range(dy.groups):
        _emit_gradient(step, build, edge, gradient, dy, group, Pass.BACKWARD)
        back.emit(group)


def _together(build: Build, edge: Edge) -> bool:
    """Whether weight and data gradient use the same spectra of the target's gradient."""
    layer = build.layout.plan.layers[edge.name]
    needed = edge.name in build.images.backward
    same = layer.method("weight") == layer.method("gradient")
    if not needed or not same or shares_filters(build, edge):
        return needed and same
    return not by_columns(build, edge, tile_of(build, edge, "weight"))


class _Back:
    """From spectra of the target's gradient to the source's: products, and sums of tiles that overlap.

    A tile gives all its points, of which the last ones lie in the tiles behind it. Half transformed tiles
    of the source's gradient take the place of the target's.
    """

    def __init__(self, step: Step, build: Build, edge: Edge, dy: TileSpectra) -> None:
        self.step, self.build, self.edge, self.dy = step, build, edge, dy
        image = build.back(edge)
        self.target = image.framed(build.layout.cropped(edge))
        self.dx = _like(dy, self.target)
        self.filters = filters_for(step, build, edge, backward=True)
        if any(d > n for d, n in zip(dy.tiling.dilation, dy.tiling.extents, strict=True)):
            _emit_zeros(step, image, Identity(edge.name, Pass.BACKWARD, Part.ZEROS))

    def emit(self, group: int) -> None:
        """Declare the tasks of a group."""
        step, build, edge, dy, dx = self.step, self.build, self.edge, self.dy, self.dx
        if isinstance(dy, PlaneSpectra) and isinstance(dx, PlaneSpectra):
            dx.places[group] = dy.places[group]
            emit_column_products(step, build, edge, dy, self.filters, dx, group, Pass.BACKWARD)
        else:
            dx.places[group] = ring_slot(step, build, edge, Pass.BACKWARD, Part.PRODUCTS, dx, group)
            if shares_filters(build, edge):
                emit_backward_products(step, build, edge, dy, self.filters, dx, group)
            else:
                emit_products(step, edge, dy, self.filters, dx, group, Pass.BACKWARD)
        self.emit_images(group)

    def emit_images(self, group: int) -> None:
        """Declare the way back of a group from the products."""
        dx, what = self.dx, Identity(self.edge.name, Pass.BACKWARD, Part.INVERSE)
        dx.places[group] = dx.places.get(group, self.dy.places[group])
        emit_images(self.step, self.build, dx, self.target, dx.tiling.tile, group, what)


def _emit_zeros(step: Step, target: Tensor, what: Identity) -> None:
    """Zeros everywhere: no tile covers lattices that lie between the target's voxels."""
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
                    cost=target.row * target.shape[1] * (high - low) * 4 / MEMORY_RATE,
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
    """Transforms of a group of the gradient's tiles, with zeros behind their new points."""
    room = dy
    if isinstance(dy, PlaneSpectra) and edge.name in build.images.backward:
        room = max(dy, _like(dy, build.back(edge)), key=lambda kept: kept.floats)
    dy.places[group] = ring_slot(step, build, edge, serves, Part.OUTPUT_TILES, room, group)
    window, what = Window(ORIGIN, dy.tiling.new), Identity(edge.name, serves, Part.OUTPUT_TILES)
    emit_spectra(step, build, dy, gradient, window, group, what)


def _source(step: Step, build: Build, edge: Edge, which: PassName) -> TileSpectra | FewSpectra:
    """Spectra of the source's tiles: those of few images all at once, others group by group."""
    if is_few(build, edge):
        return few_source(step, build, edge, which)
    return source_spectra(build, edge, which)


def _like(x: TileSpectra | FewSpectra, tensor: Tensor) -> TileSpectra:
    """Spectra of a tensor for products with others, or of such products."""
    if isinstance(x, PlaneSpectra):
        return PlaneSpectra(x.tiling, tensor.images, x.most)
    if isinstance(x, TileSpectra):
        return spectra_of(x.tiling, tensor, x.most)
    packed = tensor.lanes == LANES and saves_lanes(tensor.images, LANES)
    if packed and leaves_cache(x.tiling.tile):
        return x.planes(tensor)
    return spectra_of(x.tiling, tensor, small_group(x.tiling.tile, x.tiling.tiles, tensor.images))


def _emit_source(
    step: Step, build: Build, edge: Edge, x: TileSpectra, group: int, which: PassName
) -> None:
    """Transforms of a group of the source's tiles; kept ones once a step for all that ask."""
    if group not in x.places:
        x.places[group] = ring_slot(step, build, edge, PASS_OF[which], Part.TILES, x, group)
        what = Identity(edge.name, PASS_OF[which], Part.TILES)
    elif step.once(x.places[group]):
        what = Identity(edge.source, Pass.FORWARD, Part.KEPT_TILES)
    else:
        return
    source, window = build.seen(edge), Window(ORIGIN, x.tiling.tile)
    emit_spectra(step, build, x, source, window, group, what)
