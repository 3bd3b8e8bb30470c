"""Tiles transformed along their planes, and their products column by column, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from direct_cases import GUARD, Tensor, Triple, random_values
from packed_cases import CASES, Case, box, expected_images, inside_words, origins, place_words
from tile_cases import near
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.few_columns import RUNS, few_gradients, few_products
from znnpy_kernels.spectral.packed_columns import column_floats, packed_gradients, packed_products
from znnpy_kernels.spectral.packed_planes import packed_plane_images, packed_planes, plane_floats

from znnpy.engine.convolution.tiles import PAIR, PlaneSpectra, Tiling


class Row:
    """Half transformed tiles of a row in poisoned memory, with what tasks need to find them."""

    def __init__(self, tiling: Tiling, images: int, tiles: int, fill: float = np.nan) -> None:
        self.spectra = PlaneSpectra(tiling, images, tiles)
        z, y, x = tiling.tile
        self.images, self.tiles, self.half = images, tiles, (z, y, x // 2 + 1)
        self.vectors = -(-images * tiles // LANES)
        self.memory = np.full(self.vectors * self.spectra.vector_stride, fill, np.float32)

    @property
    def address(self) -> int:
        return address(self.memory)

    def _view(self) -> np.ndarray:
        """(vector, z, y, kx, part, lane)."""
        z, y, x = self.half
        planes = self.memory.reshape(self.vectors, z, -1)[:, :, : y * x * PAIR]
        return planes.reshape(self.vectors, z, y, x, 2, LANES)

    def read(self) -> np.ndarray:
        """(tile, image, z, y, kx)."""
        values = self._view().astype(np.float64).transpose(4, 0, 5, 1, 2, 3)
        values = values.reshape(2, -1, *self.half)[:, : self.tiles * self.images]
        return (values[0] + 1j * values[1]).reshape(self.tiles, self.images, *self.half)

    def write(self, values: np.ndarray) -> None:
        lanes = np.full((self.vectors * LANES, *self.half), np.nan, complex)
        lanes[: self.tiles * self.images] = values.reshape(-1, *self.half)
        lanes = lanes.reshape(self.vectors, LANES, *self.half).transpose(0, 2, 3, 4, 1)
        view = self._view()
        view[..., 0, :], view[..., 1, :] = lanes.real, lanes.imag


def halved(tiles: np.ndarray) -> np.ndarray:
    """Along planes; along rows where there is one plane."""
    axes = (-1,) if tiles.shape[-3] == 1 else (-2, -1)
    return np.fft.rfftn(tiles, axes=axes)


def tile_words(case: Case, tensor: Tensor, count: Triple, row: Row) -> dict[str, int]:
    scratch = np.full(plane_floats(case.tiling.tile) + 16, np.nan, np.float32)
    row.scratch = scratch
    return {
        **place_words(case, tensor, count),
        "planes": row.address,
        "scratch": address(scratch) + -address(scratch) % 64,
        "scratch_worker": 0,
    }


def cuts(count: int, first: str, last: str) -> tuple[dict[str, int], ...]:
    """Words of two tasks."""
    return {first: 0, last: count // 2}, {first: count // 2, last: count}


def tasks(case: Case, row: Row, count: Triple, *, overlap: bool = False) -> list[dict[str, int]]:
    """Words of tasks of some vectors and planes, later planes first; of all planes where turns along z forbid that."""
    turns = -(-case.tiling.tile[0] // case.tiling.new[0])
    apart = not overlap or all(grid.counts[0] <= turns for grid in case.tiling.grids)
    planes = cuts(count[0], "plane0", "plane1") if apart else ({"plane0": 0, "plane1": count[0]},)
    vectors = cuts(row.vectors, "vector0", "vector1")
    return [some | part for some in vectors for part in reversed(planes)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("whole", [True, False])
def test_planes(case: Case, whole: bool) -> None:
    count = case.tiling.tile if whole else case.tiling.new
    values = random_values(np.random.default_rng(0), case.images, *case.shape)
    tensor = Tensor(case.images, case.shape, LANES, np.nan)
    tensor.write(values)
    row = Row(case.tiling, case.images, case.tiles, GUARD)
    for task in tasks(case, row, count):
        packed_planes.run(**tile_words(case, tensor, count, row), **task)
    tiles = np.zeros((case.tiles, case.images, *case.tiling.tile))
    for tile, (lattice, origin) in zip(tiles, origins(case), strict=True):
        part = values[box(case, lattice, origin, count, case.shape)]
        tile[(slice(None), *map(slice, part.shape[1:]))] = part
    axis = row.spectra.axis
    kept = (slice(None), slice(None), *[slice(None)] * axis, slice(count[axis]))
    near(row.read()[kept], halved(tiles)[kept])
    beyond = (slice(None), slice(None), *[slice(None)] * axis, slice(count[axis], None))
    assert (row.read()[beyond] == GUARD * (1 + 1j)).all(), "no task needs what is known to be 0"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("overlap", [True, False])
def test_images(case: Case, overlap: bool) -> None:
    count = case.tiling.tile if overlap else case.tiling.new
    rng = np.random.default_rng(1)
    row = Row(case.tiling, case.images, case.tiles)
    tiles = rng.standard_normal((case.tiles, case.images, *case.tiling.tile))
    row.write(halved(tiles))
    before = random_values(rng, case.images, *case.shape)
    target = Tensor(case.images, case.shape, LANES, GUARD)
    target.write(before)
    target.whole()[-1, (case.images - 1) % LANES + 1 :] = 0
    bias = random_values(rng, case.images)
    points = np.prod(case.tiling.tile[row.spectra.axis + 1 :])
    given = {
        "scale": 0.5 / points,
        "bias": 0 if overlap else bias,
        "relu": int(not overlap),
    }
    for task in tasks(case, row, count, overlap=overlap):
        packed_plane_images.run(**tile_words(case, target, count, row), **task, **given)
    near(target.read(), expected_images(case, tiles, before, None if overlap else bias)[0])
    target.check_guards()


@pytest.mark.parametrize("case", CASES)
def test_images_of_some_tiles_after_others(case: Case) -> None:
    row, found = Row(case.tiling, case.images, case.tiles), []
    row.write(
        halved(
            np.random.default_rng(1).standard_normal((case.tiles, case.images, *case.tiling.tile))
        )
    )
    given = {"scale": 1.0, "bias": 0, "relu": 0, "plane0": 0, "plane1": case.tiling.tile[0]}
    for cut in (0, case.tiles // 2, case.tiles // 3):
        target = Tensor(case.images, case.shape, LANES, GUARD)
        for low, high in ((0, cut), (cut, case.tiles)):
            vectors = low * case.images // LANES, -(-high * case.images // LANES)
            part = {"tile0": low, "tiles": high, "vector0": vectors[0], "vector1": vectors[1]}
            words = tile_words(case, target, case.tiling.tile, row) | part
            packed_plane_images.run(**words, **given)
        found.append(target.whole().copy())
        target.check_guards()
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("padding", [(1, 2, 3), (0, 5, 1)])
def test_images_that_begin_behind_the_first_tiles(case: Case, padding: Triple) -> None:
    count, (z, y, x) = case.tiling.tile, map(min, padding, (n - 1 for n in case.shape))
    rng, row = np.random.default_rng(1), Row(case.tiling, case.images, case.tiles)
    tiles = rng.standard_normal((case.tiles, case.images, *case.tiling.tile))
    row.write(halved(tiles))
    smaller = case.shape[0] - z, max(1, case.shape[1] - y - 1), case.shape[2] - x
    target = Tensor(case.images, smaller, LANES, GUARD)
    target.write(np.zeros((case.images, *smaller), np.float32))
    given = {"scale": 0.5 / np.prod(case.tiling.tile[row.spectra.axis + 1 :]), "bias": 0, "relu": 0}
    words = tile_words(case, target, count, row) | inside_words(target, (z, y, x), smaller)
    for task in tasks(case, row, count, overlap=True):
        packed_plane_images.run(**words, **task, **given)
    whole, _ = expected_images(case, tiles, np.zeros((case.images, *case.shape)), None)
    inside = (slice(n, n + size) for n, size in zip((z, y, x), smaller, strict=True))
    near(target.read(), whole[(slice(None), *inside)])
    target.check_guards()


COLUMNS = [
    (Tiling((8, 6, 6), (6, 4, 4), (1, 1, 1), (12, 8, 8), 1), 10, 10, 8),
    (Tiling((6, 8, 10), (4, 6, 8), (1, 1, 1), (4, 12, 24), 1), 10, 3, 6),
    (Tiling((6, 6, 6), (2, 2, 2), (1, 1, 1), (6, 2, 2), 1), 2, LANES + 5, 3),
    (Tiling((1, 8, 8), (1, 6, 6), (1, 1, 1), (1, 12, 18), 1), LANES + 4, 2 * LANES + 4, 6),
]


class Products:
    """A row of images, one of outputs, and filters between them, in rising frequencies."""

    def __init__(self, tiling: Tiling, inputs: int, outputs: int, tiles: int) -> None:
        self.rng = np.random.default_rng(inputs)
        self.x, self.y = Row(tiling, inputs, tiles), Row(tiling, outputs, tiles)
        self.tiles, self.inputs, self.outputs = tiles, inputs, outputs
        self.axis, half = self.x.spectra.axis, self.x.half
        self.points, self.step = self.x.spectra.points, tiling.new[self.axis]
        self.frequencies = int(np.prod(half))
        w = self.rng.standard_normal((self.frequencies, inputs, outputs, 2)).astype(np.float32)
        self.filters = w.view(np.complex64)[..., 0].reshape(*half, inputs, outputs)

    def random(self, row: Row, points: int) -> np.ndarray:
        """Half transformed tiles in a row, NaN beyond `points`; gives them with zeros there."""
        values = self.rng.standard_normal((row.tiles, row.images, *row.half, 2))
        values = values.astype(np.float32).astype(np.float64).view(complex)[..., 0]
        beyond = (slice(None), slice(None), *[slice(None)] * self.axis, slice(points, None))
        values[beyond] = np.nan
        row.write(values)
        values[beyond] = 0
        return values

    def memory(self, values: np.ndarray) -> np.ndarray:
        """Filters as kernels have them: [frequency][input][block][re, im][lane]."""
        blocks = -(-self.outputs // LANES)
        lanes = np.zeros((self.frequencies, self.inputs, blocks * LANES), complex)
        lanes[..., : self.outputs] = values.reshape(self.frequencies, self.inputs, self.outputs)
        lanes = lanes.reshape(self.frequencies, self.inputs, blocks, LANES)
        return np.stack((lanes.real, lanes.imag), 3).astype(np.float32)

    def words(self, x: Row, y: Row, points: tuple[int, int], w: np.ndarray) -> dict[str, int]:
        floats = column_floats(self.points, self.tiles, x.images, y.images)
        self.scratch = np.full(floats + 16, np.nan, np.float32)
        return {
            "x": x.address, "x_images": x.images, "x_points": points[0],
            "y": y.address, "y_images": y.images, "y_points": points[1], "target": 0,
            "plane": x.spectra.point_stride, "vector": x.spectra.vector_stride,
            "points": self.points, "columns": x.spectra.columns, "tiles": self.tiles,
            "w": w, "w_frequency": w[0].size, "w_input": w[0, 0].size, "w_block": PAIR,
            "exchanged": 0, "gradient": 0, "accumulate": 0,
            "scratch": address(self.scratch) + -address(self.scratch) % 64,
            "scratch_worker": 0,
        }  # fmt: skip

    def run(self, kernel, given: dict[str, int]) -> None:
        for task in cuts(self.x.spectra.columns, "column0", "column1"):
            kernel.run(**given, **task)

    def forward(self, values: np.ndarray) -> np.ndarray:
        return np.fft.fft(values, axis=self.axis + 2)

    def back(self, spectra: np.ndarray, points: int) -> np.ndarray:
        values = np.fft.ifft(spectra, axis=self.axis + 2) * self.points
        return values[(slice(None), slice(None), *[slice(None)] * self.axis, slice(points))]


@pytest.mark.parametrize(("tiling", "inputs", "outputs", "tiles"), COLUMNS)
def test_products(tiling: Tiling, inputs: int, outputs: int, tiles: int) -> None:
    case = Products(tiling, inputs, outputs, tiles)
    x = case.random(case.x, case.points)
    w = case.memory(case.filters)
    case.run(packed_products, case.words(case.x, case.y, (case.points, case.step), w))
    spectra = np.einsum("tizyx,zyxio->tozyx", case.forward(x), case.filters)
    axis = case.axis
    kept = (slice(None), slice(None), *[slice(None)] * axis, slice(case.step))
    near(case.y.read()[kept], case.back(spectra, case.step))
    beyond = (slice(None), slice(None), *[slice(None)] * axis, slice(case.step, None))
    assert np.isnan(case.y.read()[beyond]).all(), "unwanted points must not be written"


@pytest.mark.parametrize(("tiling", "inputs", "outputs", "tiles"), COLUMNS)
def test_data_gradient_with_forward_filters(
    tiling: Tiling, inputs: int, outputs: int, tiles: int
) -> None:
    case = Products(tiling, inputs, outputs, tiles)
    dy = case.random(case.y, case.step)
    w = case.memory(case.filters)
    given = case.words(case.y, case.x, (case.step, case.points), w)
    case.run(packed_products, given | {"exchanged": 1})
    spectra = np.einsum("tozyx,zyxio->tizyx", case.forward(dy), case.filters.conj())
    near(case.x.read(), case.back(spectra, case.points))


@pytest.mark.parametrize(("tiling", "inputs", "outputs", "tiles"), COLUMNS)
@pytest.mark.parametrize("both", [True, False])
def test_gradients(tiling: Tiling, inputs: int, outputs: int, tiles: int, both: bool) -> None:
    case = Products(tiling, inputs, outputs, tiles)
    x, dy = case.random(case.x, case.points), case.random(case.y, case.step)
    w = case.memory(case.filters)
    before = case.rng.standard_normal(case.filters.shape)
    sums, dx = case.memory(before), Row(tiling, inputs, tiles)
    given = case.words(case.x, case.y, (case.points, case.step), w) | {
        "gradient": sums,
        "accumulate": int(both),
        "target": dx.address if both else 0,
    }
    case.run(packed_gradients, given)
    expected = np.einsum("tizyx,tozyx->zyxio", case.forward(x), case.forward(dy).conj())
    near(sums, case.memory(expected + before * both))
    if both:
        spectra = np.einsum("tozyx,zyxio->tizyx", case.forward(dy), case.filters.conj())
        near(dx.read(), case.back(spectra, case.points))


def few_words(case: Products, x: np.ndarray, w: np.ndarray) -> dict[str, int]:
    """Words of two runs of tiles, the second of which begins a block of lanes."""
    lanes = LANES // case.inputs
    first = min(lanes - 1, case.tiles - 1)
    runs = [((lanes - first) * case.inputs, 0, first), (x[0].size, first, case.tiles - first)]
    given = case.words(case.x, case.y, (0, case.step), w) | {"x": x, "runs": 2}
    for number in range(RUNS):
        lane, start, tiles = runs[number] if number < 2 else (0, 0, 0)
        given |= {f"lane{number}": lane, f"first{number}": start, f"tiles{number}": tiles}
    return given


def few_spectra(case: Products) -> tuple[np.ndarray, np.ndarray]:
    """Whole spectra (tile, image, kz, ky, kx), and the same as two blocks of lanes have them."""
    lanes = LANES // case.inputs
    first = min(lanes - 1, case.tiles - 1)
    values = case.rng.standard_normal((case.tiles, case.inputs, *case.x.half, 2))
    values = values.astype(np.float32).astype(np.float64).view(complex)[..., 0]
    memory = np.full((2, case.frequencies, 2, LANES), np.nan, np.float32)
    rows = values.reshape(-1, case.frequencies).T
    start, cut = (lanes - first) * case.inputs, first * case.inputs
    for part, numbers in enumerate((rows.real, rows.imag)):
        memory[0, :, part, start : start + cut] = numbers[:, :cut]
        memory[1, :, part, : rows.shape[1] - cut] = numbers[:, cut:]
    return values, memory


FEW = [  # as many tiles as lanes of two blocks have room for, behind one that is not theirs
    (Tiling((8, 6, 6), (6, 4, 4), (1, 1, 1), (12, 8, 8), 1), 2, 10, LANES // 2),
    (Tiling((1, 8, 8), (1, 6, 6), (1, 1, 1), (1, 12, 18), 1), 1, LANES + 4, 6),
]


@pytest.mark.parametrize(("tiling", "inputs", "outputs", "tiles"), FEW)
def test_products_with_few_images(tiling: Tiling, inputs: int, outputs: int, tiles: int) -> None:
    case = Products(tiling, inputs, outputs, tiles)
    (x, memory), w = few_spectra(case), case.memory(case.filters)
    case.run(few_products, few_words(case, memory, w) | {"w": w})
    spectra = np.einsum("tizyx,zyxio->tozyx", x, case.filters)
    kept = (slice(None), slice(None), *[slice(None)] * case.axis, slice(case.step))
    near(case.y.read()[kept], case.back(spectra, case.step))


@pytest.mark.parametrize(("tiling", "inputs", "outputs", "tiles"), FEW)
@pytest.mark.parametrize("accumulate", [0, 1])
def test_gradients_with_few_images(
    tiling: Tiling, inputs: int, outputs: int, tiles: int, accumulate: int
) -> None:
    case = Products(tiling, inputs, outputs, tiles)
    (x, memory), dy = few_spectra(case), case.random(case.y, case.step)
    before = case.rng.standard_normal(case.filters.shape)
    sums = case.memory(before)
    given = few_words(case, memory, sums) | {"gradient": sums, "accumulate": accumulate}
    case.run(few_gradients, given)
    expected = np.einsum("tizyx,tozyx->zyxio", x, case.forward(dy).conj())
    near(sums, case.memory(expected + accumulate * before))
