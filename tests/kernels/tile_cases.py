"""Cases for the tile kernels: tensors with gaps and guards, float64 references, one run of each kernel."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from direct_cases import GUARD, Tensor, Triple, random_values
from numpy.lib.stride_tricks import as_strided
from znnpy_kernels.direct.packed_filters import (
    group_offset,
    output_groups,
    pack_filters,
    unpack_filters,
)
from znnpy_kernels.fft.codelets import FEW
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.filter_planes import (
    filter_gradient_planes,
    filter_planes,
    plane_floats,
    planes_floats,
)
from znnpy_kernels.spectral.filter_tiles import filter_gradient_tiles, filter_tiles
from znnpy_kernels.spectral.tile_columns import (
    COLUMN_FLOATS,
    conjugate_columns,
    tile_columns,
    tile_columns_back,
)
from znnpy_kernels.spectral.tile_plane_images import tile_plane_images
from znnpy_kernels.spectral.tile_spectra import scratch_floats, tile_images, tile_spectra

AXES = "zyx"
TOLERANCE = 3e-6


@dataclass(frozen=True)
class Tiling:
    """Tiles over one lattice of an image; see `tile_spectra` for the words."""

    size: Triple
    tiles: Triple
    step: Triple
    origin: Triple
    count: Triple
    first: Triple = (0, 0, 0)
    dilation: Triple = (1, 1, 1)
    lattice: Triple = (0, 0, 0)

    @property
    def number(self) -> int:
        return int(np.prod(self.tiles))

    @property
    def half(self) -> Triple:
        return (*self.size[:2], self.size[2] // 2 + 1)

    def origins(self) -> list[Triple]:
        """Lattice voxel under each tile's first point."""
        return [
            tuple(o + t * s for o, t, s in zip(self.origin, tile, self.step, strict=True))
            for tile in by_turns(self.tiles, self.size, self.step)
        ]

    def limits(self, image: Triple) -> Triple:
        """Voxels of the lattice on each axis."""
        return tuple(
            -(-(n - q) // d) for n, q, d in zip(image, self.lattice, self.dilation, strict=True)
        )


def by_turns(tiles: Triple, size: Triple, step: Triple) -> list[Triple]:
    """Places of a grid's tiles in the order of their numbers: of each plane, those that never overlap together."""
    apart = [-(-points // new) for points, new in zip(size, step, strict=True)]

    def order(place: Triple) -> tuple[int, ...]:
        z, y, x = (number % turns for number, turns in zip(place, apart, strict=True))
        return z, place[0], y, x

    return sorted(product(*map(range, tiles)), key=order)


class Spectra:
    """Rows of complex vectors [frequency][tile][block] with gaps, and guards in them."""

    def __init__(self, frequencies: Triple, tiles: int, blocks: int) -> None:
        self.frequencies = frequencies
        self.block = 2 * LANES
        self.tile = blocks * self.block + LANES
        self.frequency = tiles * self.tile + 2 * LANES
        self.count = int(np.prod(frequencies))
        self.shape = (self.count, tiles, blocks, 2, LANES)
        self.buffer = np.full(self.count * self.frequency + 64, GUARD, np.float32)
        self.start = 16 + (-address(self.buffer) % 64) // 4

    @property
    def address(self) -> int:
        return address(self.buffer) + 4 * self.start

    def whole(self, buffer: np.ndarray | None = None) -> np.ndarray:
        steps = (self.frequency, self.tile, self.block, LANES, 1)
        buffer = self.buffer if buffer is None else buffer
        strides = tuple(buffer.itemsize * s for s in steps)
        return as_strided(buffer[self.start :], self.shape, strides)

    def read(self) -> np.ndarray:
        """(tile, image, kz, ky, kx) as complex128."""
        values = self.whole().astype(np.float64)
        values = (values[..., 0, :] + 1j * values[..., 1, :]).transpose(1, 2, 3, 0)
        return values.reshape(self.shape[1], -1, *self.frequencies)

    def write(self, values: np.ndarray) -> None:
        tiles, blocks = self.shape[1:3]
        values = values.reshape(tiles, blocks, LANES, self.count).transpose(3, 0, 1, 2)
        self.whole()[..., 0, :], self.whole()[..., 1, :] = values.real, values.imag

    def check_guards(self) -> None:
        inside = np.zeros(self.buffer.shape, bool)
        self.whole(inside)[...] = True
        assert (self.buffer[~inside] == GUARD).all(), "written outside the spectra"


class Scratch:
    """Room of two workers, poisoned, with guards around the second, who does the work."""

    def __init__(self, size: Triple) -> None:
        self.floats = scratch_floats(size)
        self.stride = self.floats + 16
        self.buffer = np.full(2 * self.stride + 64, np.nan, np.float32)
        self.start = (-address(self.buffer) % 64) // 4

    def words(self) -> dict[str, int]:
        return {
            "scratch": address(self.buffer) + 4 * self.start,
            "scratch_worker": self.stride,
        }

    def check_guards(self) -> None:
        mine = self.start + self.stride
        assert np.isnan(self.buffer[:mine]).all()
        assert np.isnan(self.buffer[mine + self.floats :]).all()


def words(name: str, values: Triple) -> dict[str, int]:
    """One word for each axis."""
    return {f"{name}_{axis}": value for axis, value in zip(AXES, values, strict=True)}


def near(actual: np.ndarray, expected: np.ndarray, tolerance: float = TOLERANCE) -> None:
    """Largest error relative to the largest value."""
    error = np.abs(actual - expected).max(initial=0)
    assert error <= tolerance * max(1e-30, np.abs(expected).max(initial=0)), error


def tile_voxels(images: np.ndarray, tiling: Tiling) -> np.ndarray:
    """(tile, image, z, y, x): what each tile reads, zeros elsewhere, in float64."""
    window = tuple(slice(q, None, d) for q, d in zip(tiling.lattice, tiling.dilation, strict=True))
    lattice = images[(slice(None), *window)]
    out = np.zeros((tiling.number, len(images), *tiling.size))
    for number, origin in enumerate(tiling.origins()):
        for point in product(*map(range, tiling.count)):
            voxel = tuple(o + p for o, p in zip(origin, point, strict=True))
            if all(0 <= v < n for v, n in zip(voxel, lattice.shape[1:], strict=True)):
                out[(number, slice(None), *point)] = lattice[(slice(None), *voxel)]
    return out


def without_mirrored(spectra: np.ndarray, size: Triple) -> np.ndarray:
    """Spectra of tiles whose frequencies that no product makes are NaN."""
    for kx in {0, size[2] // 2} if size[2] % 2 == 0 else {0}:
        spectra[..., size[1] // 2 + 1 :, kx] = np.nan
    return spectra


def lattice_start(tensor: Tensor, tiling: Tiling) -> tuple[int, Triple]:
    """Address of a lattice's voxel (0, 0, 0), and its strides."""
    steps = (tensor.z, tensor.y, tensor.x)
    offset = sum(q * s for q, s in zip(tiling.lattice, steps, strict=True))
    strides = tuple(d * s for d, s in zip(tiling.dilation, steps, strict=True))
    return tensor.address + 4 * offset, strides


def check_spectra(
    tiling: Tiling,
    image: Triple,
    channels: int,
    seed: int = 0,
    planar: bool = False,
) -> None:
    """`tile_spectra` in two tasks against NumPy."""
    rng = np.random.default_rng(seed)
    values = random_values(rng, channels, *image)
    tensor = Tensor(channels, image, 1 if planar else LANES, np.nan)
    tensor.write(values)
    blocks = -(-channels // LANES)
    spectra, scratch = Spectra(tiling.half, tiling.number, blocks), Scratch(tiling.size)
    source, strides = lattice_start(tensor, tiling)
    cut = tiling.number // 3
    for tile0, tile1 in ((0, cut), (cut, tiling.number)):
        tile_spectra.run(
            1, source=source, source_block=LANES * tensor.block if planar else tensor.block,
            source_lane=tensor.block if planar else 1, channels=channels, blocks=blocks,
            **words("tiles", tiling.tiles), tile0=tile0, tile1=tile1,
            target=spectra.address, target_frequency=spectra.frequency, target_tile=spectra.tile,
            target_block=spectra.block, **words("source", strides),
            **words("origin", tiling.origin), **words("step", tiling.step),
            **words("count", tiling.count), **words("limit", tiling.limits(image)),
            **words("size", tiling.size), **scratch.words(),
        )  # fmt: skip
    expected = np.fft.rfftn(tile_voxels(values, tiling), axes=(2, 3, 4))
    result = spectra.read()
    near(result[:, :channels], expected)
    assert not result[:, channels:].any(), "missing lanes must be 0"
    spectra.check_guards()
    scratch.check_guards()


def check_images(
    tiling: Tiling,
    image: Triple,
    channels: int,
    seed: int = 0,
    bias: bool = False,
    relu: bool = False,
) -> None:
    """`tile_images` in two tasks against NumPy; `bias` and `relu` only where tiles do not overlap.

    Tiles of several planes also in two stages, columns and planes apart: the same bits.
    """
    rng = np.random.default_rng(seed)
    blocks = -(-channels // LANES)
    tiles = rng.standard_normal((tiling.number, blocks * LANES, *tiling.size))
    tiles[:, channels:] = 0
    spectra, scratch = Spectra(tiling.half, tiling.number, blocks), Scratch(tiling.size)
    spectra.write(without_mirrored(np.fft.rfftn(tiles, axes=(2, 3, 4)), tiling.size))
    target = Tensor(channels, image, LANES, GUARD)
    before = random_values(rng, channels, *image)
    target.write(before)
    offsets = random_values(rng, blocks * LANES)
    start, strides = lattice_start(target, tiling)
    cut = tiling.number // 2
    given = {
        "source": spectra.address, "source_frequency": spectra.frequency,
        "source_tile": spectra.tile, "source_block": spectra.block, "blocks": blocks,
        **words("tiles", tiling.tiles), "target_block": target.block,
        "scale": 0.5 / np.prod(tiling.size), "bias": address(offsets) if bias else 0,
        "channels": channels, "relu": relu, **words("target", strides),
        **words("size", tiling.size), **words("first", tiling.first),
        **words("count", tiling.count), **words("origin", tiling.origin),
        **words("step", tiling.step), **words("limit", tiling.limits(image)),
        **scratch.words(),
    }  # fmt: skip
    for tile0, tile1 in ((0, cut), (cut, tiling.number)):
        tile_images.run(1, target=start, tile0=tile0, tile1=tile1, **given)
    if tiling.size[0] > 1:
        other = Tensor(channels, image, LANES, GUARD)
        other.write(before)
        _columns_back(tiling.size, tiling.number, spectra, blocks)
        middle = tiling.first[0] + tiling.count[0] // 2
        # Tiles in the order of their numbers, as they may overlap; the planes of one in any.
        for tile, (low, high) in product(
            range(tiling.number), ((middle, tiling.size[0]), (0, middle))
        ):
            tile_plane_images.run(
                1, target=lattice_start(other, tiling)[0], tile0=tile, tile1=tile + 1,
                plane0=low, plane1=high, **given,
            )  # fmt: skip
        np.testing.assert_array_equal(other.read(), target.read())
        other.check_guards()
    offsets = offsets[:channels] if bias else np.zeros(channels)
    least = 0.0 if relu else -np.inf
    near(
        target.read(),
        expected_images(tiling, tiles[:, :channels], before, offsets, least),
    )
    target.check_guards()
    scratch.check_guards()


def _columns_back(size: Triple, tiles: int, spectra: Spectra, blocks: int) -> None:
    """Transform spectra back along z in place, by two tasks for each tile."""
    columns = size[1] * (size[2] // 2 + 1)
    place = spectra.frequency * columns, spectra.frequency, spectra.block
    scratch = np.full(COLUMN_FLOATS + 16, np.nan, np.float32)
    given = {
        f"{end}_{name}": step
        for end in ("source", "target")
        for name, step in zip(("point", "column", "vector"), place, strict=True)
    }
    for tile, (low, high) in product(range(tiles), ((columns // 2, columns), (0, columns // 2))):
        here = spectra.address + 4 * tile * spectra.tile
        tile_columns_back.run(
            source=here, target=here, **given, parts=LANES, points=size[0], vectors=blocks,
            column0=low, column1=high,
            scratch=address(scratch) + -address(scratch) % 64, scratch_worker=0,
        )  # fmt: skip


def expected_images(
    tiling: Tiling,
    tiles: np.ndarray,
    before: np.ndarray,
    bias: np.ndarray,
    least: float,
) -> np.ndarray:
    """Images with half of the sums of the tiles' wanted points, plus a bias, but no less than `least`."""
    out = before.astype(np.float64)
    written: set[tuple[int, ...]] = set()
    window = tuple(slice(q, None, d) for q, d in zip(tiling.lattice, tiling.dilation, strict=True))
    lattice = out[(slice(None), *window)]
    for number, origin in enumerate(tiling.origins()):
        for wanted in product(*map(range, tiling.count)):
            voxel = tuple(o + p for o, p in zip(origin, wanted, strict=True))
            point = tuple(f + p for f, p in zip(tiling.first, wanted, strict=True))
            if all(0 <= v < n for v, n in zip(voxel, lattice.shape[1:], strict=True)):
                old = lattice[(slice(None), *voxel)] if voxel in written else bias
                written.add(voxel)
                new = old + 0.5 * tiles[(number, slice(None), *point)]
                lattice[(slice(None), *voxel)] = np.maximum(new, least)
    return out


def check_filters(
    size: Triple, taps: Triple, images: tuple[int, int], seed: int = 0, conjugate: bool = False
) -> None:
    """`filter_tiles` from packed filters, forward and transposed, against NumPy; in two stages the same bits."""
    inputs, outputs = images
    filters = random_values(np.random.default_rng(seed), outputs, inputs, *taps)
    packed = pack_filters(filters)
    expected = np.fft.rfftn(filters.astype(np.float64), size, axes=(2, 3, 4))
    expected = expected.conj() if conjugate else expected
    for transposed in (False, True):
        rows, lanes = (outputs, inputs) if transposed else (inputs, outputs)
        blocks = -(-lanes // LANES)
        spectra, scratch = Spectra((*size[:2], size[2] // 2 + 1), rows, blocks), Scratch(size)
        apart = Spectra((*size[:2], size[2] // 2 + 1), rows, blocks)
        for o_block, i_block in product(range(-(-outputs // LANES)), range(-(-inputs // LANES))):
            first, block = (o_block, i_block) if transposed else (i_block, o_block)
            place = 4 * (first * LANES * spectra.tile + block * spectra.block)
            given = piece(address(packed), "source", taps, images, o_block, i_block, transposed)
            given |= {
                "target": spectra.address + place, "target_frequency": spectra.frequency,
                "target_input": spectra.tile, "conjugate": int(conjugate),
                **words("taps", taps), **words("size", size), **scratch.words(),
            }  # fmt: skip
            filter_tiles.run(1, **given)
            if size[0] > 1 and max(taps[:2]) > FEW:
                _planes_apart(given, size, apart, apart.address + place)
        result = spectra.read()
        if size[0] > 1 and max(taps[:2]) > FEW:
            np.testing.assert_array_equal(apart.read(), result)
            apart.check_guards()
        near(result[:, :lanes], expected if transposed else expected.swapaxes(0, 1))
        assert not result[:, lanes:].any(), "missing lanes must be 0"
        spectra.check_guards()
        scratch.check_guards()


def _planes_apart(given: dict[str, int], size: Triple, spectra: Spectra, target: int) -> None:
    """Transform filters by two tasks of planes and two of columns, as `filter_tiles` does by one."""
    vectors, columns = given["inputs"], size[1] * (size[2] // 2 + 1)
    middle, tile, step = given["taps_z"] // 2, planes_floats(size), plane_floats(size)
    planes = np.full(vectors * tile + 16, np.nan, np.float32)
    place = address(planes) + -address(planes) % 64
    for plane0, plane1 in ((middle, size[0]), (0, middle)):
        filter_planes.run(1, **given, planes=place, planes_tile=tile, plane0=plane0, plane1=plane1)
    scratch = np.full(COLUMN_FLOATS + 16, np.nan, np.float32)
    for low, high in ((columns // 2, columns), (0, columns // 2)):
        (conjugate_columns if given["conjugate"] else tile_columns).run(
            source=place, source_point=step, source_column=2 * LANES, source_vector=tile,
            target=target, target_point=columns * spectra.frequency,
            target_column=spectra.frequency, target_vector=spectra.tile, parts=LANES,
            points=size[0], vectors=vectors, column0=low, column1=high,
            scratch=address(scratch) + -address(scratch) % 64, scratch_worker=0,
        )  # fmt: skip


def piece(
    address: int, end: str, taps: Triple, images: tuple[int, int], o_block: int, i_block: int,
    transposed: bool,
) -> dict[str, int]:  # fmt: skip
    """Words of the filters between an output and an input block of packed filters."""
    inputs, outputs = images
    count = int(np.prod(taps))
    width = LANES * output_groups(outputs)[o_block // 2]
    i_count = min(LANES, inputs - i_block * LANES)
    o_count = min(LANES, outputs - o_block * LANES)
    offset = group_offset(o_block // 2, inputs, count) + i_block * LANES * count * width
    offset += o_block % 2 * LANES
    x = i_count * width
    found = {
        end: address + 4 * offset,
        f"{end}_input": 1 if transposed else width,
        **one_piece(end, width),
        "inputs": o_count if transposed else i_count,
        **words(end, (taps[1] * taps[2] * x, taps[2] * x, x)),
    }
    if end == "source":
        found |= {"source_lane": width if transposed else 1}
        found |= {"lanes": i_count if transposed else LANES}
    return found


def one_piece(end: str, tiles: int) -> dict[str, int]:
    """Words of a task within the first piece, of so many tiles at most."""
    return {"first": 0, "each": tiles, f"{end}_each": 0}


def check_filter_gradients(
    size: Triple, taps: Triple, images: tuple[int, int], seed: int = 0, accumulate: bool = False
) -> None:
    """`filter_gradient_tiles` into packed gradients against NumPy; columns and planes apart give the same bits."""
    inputs, outputs = images
    rng = np.random.default_rng(seed)
    blocks = -(-outputs // LANES)
    tiles = rng.standard_normal((inputs, blocks * LANES, *size))
    tiles[:, outputs:] = 0
    spectra, scratch = Spectra((*size[:2], size[2] // 2 + 1), inputs, blocks), Scratch(size)
    spectra.write(without_mirrored(np.fft.rfftn(tiles, axes=(2, 3, 4)), size))
    before = random_values(rng, outputs, inputs, *taps)
    packed = pack_filters(before)
    guarded = np.full(packed.size + 2 * LANES, GUARD, np.float32)
    guarded[LANES:-LANES] = packed
    apart = guarded.copy()

    def run(kernel: Kernel, target: np.ndarray, **planes: int) -> None:
        for o_block, i_block in product(range(blocks), range(-(-inputs // LANES))):
            source = spectra.address + 4 * (
                i_block * LANES * spectra.tile + o_block * spectra.block
            )
            first = address(target) + 4 * LANES
            kernel.run(
                1, **piece(first, "target", taps, images, o_block, i_block, False), source=source,
                source_frequency=spectra.frequency, source_input=spectra.tile,
                accumulate=accumulate, scale=1 / np.prod(size), **words("taps", taps),
                **words("size", size), **scratch.words(), **planes,
            )  # fmt: skip

    run(filter_gradient_tiles, guarded)
    # Of few taps other code transforms columns.
    if size[0] > 1 and max(taps[:2]) > FEW:
        _columns_back(size, inputs, spectra, blocks)
        middle = taps[0] // 2
        for plane0, plane1 in ((middle, taps[0]), (0, middle)):
            run(filter_gradient_planes, apart, plane0=plane0, plane1=plane1)
        np.testing.assert_array_equal(apart, guarded)
    shape = (outputs, inputs, *taps)
    expected = tiles[:, :outputs, : taps[0], : taps[1], : taps[2]].swapaxes(0, 1)
    result = guarded[LANES:-LANES]
    near(unpack_filters(result, shape), expected + (before if accumulate else 0))
    assert (guarded[:LANES] == GUARD).all()
    assert (guarded[-LANES:] == GUARD).all()
    again = pack_filters(unpack_filters(result, shape))
    np.testing.assert_array_equal(again, result, "lanes beyond the last output must be 0")
    scratch.check_guards()
