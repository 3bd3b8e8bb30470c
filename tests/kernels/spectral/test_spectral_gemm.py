"""Complex products of tiled spectra against NumPy in complex128."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.exchanged_filters import backward_floats
from znnpy_kernels.spectral.gauss_products import gauss_backward, gauss_gradients, gauss_products
from znnpy_kernels.spectral.gemm import backward_products, spectral_gradients, spectral_products

PAIR = 2 * LANES
GUARD = -12345.0


class Vectors:
    """[first][second][block] complex vectors with a gap behind each first index."""

    def __init__(self, first: int, second: int, blocks: int, seed: int | None = None) -> None:
        memory = np.full((first, second * blocks + 1, 2, LANES), GUARD, np.float32)
        self.first_stride, self.second_stride = (second * blocks + 1) * PAIR, blocks * PAIR
        self.memory, self.shape = memory, (first, second, blocks)
        if seed is not None:
            rng = np.random.default_rng(seed)
            memory[:, :-1] = rng.standard_normal(memory[:, :-1].shape)

    def complex(self) -> np.ndarray:
        first, second, blocks = self.shape
        inner = self.memory[:, :-1].reshape(first, second, blocks, 2, LANES).astype(np.float64)
        return (inner[..., 0, :] + 1j * inner[..., 1, :]).reshape(first, second, blocks * LANES)

    def words(self, name: str, second: str, frequency: int = 0) -> dict[str, int]:
        return {
            name: address(self.memory) + 4 * frequency * self.first_stride,
            f"{name}_frequency": self.first_stride,
            f"{name}_{second}": self.second_stride,
            f"{name}_block": PAIR,
        }

    def guarded(self) -> bool:
        return bool((self.memory[:, -1] == GUARD).all())


def words(x: Vectors, w: Vectors, y: Vectors, inputs: int, **other: Any) -> dict[str, Any]:
    given = {
        **x.words("x", "tile"), **w.words("w", "input"), **y.words("y", "tile"),
        "frequencies": x.shape[0], "tiles": x.shape[1], "inputs": inputs, "blocks": y.shape[2],
        "x_parts": LANES, "y_parts": LANES, "lanes": LANES, "first": 0, "size_y": 0, "size_x": 0,
    }  # fmt: skip
    return given | other


def ways(four: Kernel, three: Kernel, blocks: int) -> list[Kernel]:
    """The kernels that take so many vectors of outputs."""
    return [four, three] if blocks > 1 else [four]


def operands(frequencies: int, tiles: int, inputs: int, blocks: int) -> tuple[Vectors, ...]:
    x = Vectors(frequencies, tiles, -(-inputs // LANES), seed=1)
    return x, Vectors(frequencies, inputs, blocks, seed=2), Vectors(frequencies, tiles, blocks)


CASES = [(t, i, b) for t in (1, 5, 6, 7, 13, 25) for i, b in ((1, 1), (10, 2), (LANES, 3))]
CASES += [(8, 2 * LANES + 1, 1), (12, LANES + 3, 4), (3, 3 * LANES, 5)]
# Terms in several ranges, and more tiles than are gathered at once.
CASES += [(70, 67, 2), (131, 20, 3), (64, 24, 7), (65, 250, 2)]
BACKWARD_CASES = [
    (1, 1, 1),
    (7, LANES, LANES),
    (13, LANES + 3, 10),
    (5, 3 * LANES - 1, 2 * LANES + 5),
    (66, 20, 50),
    (9, 4 * LANES, 70),
]


@pytest.mark.quick(8)
@pytest.mark.parametrize(("tiles", "inputs", "blocks"), CASES)
def test_products(tiles: int, inputs: int, blocks: int) -> None:
    for kernel in ways(spectral_products, gauss_products, blocks):
        x, w, y = operands(3, tiles, inputs, blocks)
        kernel.run(**words(x, w, y, inputs))
        wanted = np.einsum("fti,fio->fto", x.complex()[..., :inputs], w.complex())
        np.testing.assert_allclose(y.complex(), wanted, atol=2e-5 * np.sqrt(inputs))
        assert y.guarded()


@pytest.mark.quick(8)
@pytest.mark.parametrize(("tiles", "inputs", "blocks"), CASES)
def test_gradients(tiles: int, inputs: int, blocks: int) -> None:
    x, _, _ = operands(3, tiles, inputs, blocks)
    for kernel in ways(spectral_gradients, gauss_gradients, blocks):
        y, w = Vectors(3, tiles, blocks, seed=4), Vectors(3, inputs, blocks)
        kernel.run(**words(x, w, y, inputs, accumulate=0))
        wanted = np.einsum("fti,fto->fio", x.complex()[..., :inputs], y.complex().conj())
        np.testing.assert_allclose(w.complex(), wanted, atol=2e-5 * np.sqrt(tiles))
        assert w.guarded()


@pytest.mark.parametrize(("tiles", "images", "outputs"), BACKWARD_CASES)
def test_backward_products(tiles: int, images: int, outputs: int) -> None:
    x = Vectors(3, tiles, -(-outputs // LANES), seed=5)
    w = Vectors(3, images, -(-outputs // LANES), seed=6)
    for kernel in ways(backward_products, gauss_backward, -(-images // LANES)):
        y = Vectors(3, tiles, -(-images // LANES))
        room = np.full(backward_floats(outputs) + 1, GUARD, np.float32)
        kernel.run(**words(x, w, y, outputs, images=images, scratch=room, scratch_worker=0))
        wanted = np.einsum(
            "fto,fio->fti", x.complex()[..., :outputs], w.complex()[..., :outputs].conj()
        )
        np.testing.assert_allclose(y.complex()[..., :images], wanted, atol=2e-5 * np.sqrt(outputs))
        assert not y.complex()[..., images:].any()
        assert y.guarded()
        assert room[-1] == GUARD


@pytest.mark.parametrize("kernel", [spectral_gradients, gauss_gradients])
@pytest.mark.parametrize(("inputs", "groups"), [(5, (4, 4, 3)), (20, (18, 18, 36))])
def test_groups_of_tiles_add_up(kernel: Kernel, inputs: int, groups: tuple[int, ...]) -> None:
    w, wanted = Vectors(2, inputs, 3), 0
    for group, tiles in enumerate(groups):
        x = Vectors(2, tiles, -(-inputs // LANES), seed=group)
        y = Vectors(2, tiles, 3, seed=9 + group)
        kernel.run(**words(x, w, y, inputs, accumulate=int(group > 0)))
        wanted = wanted + np.einsum("fti,fto->fio", x.complex()[..., :inputs], y.complex().conj())
    np.testing.assert_allclose(w.complex(), wanted, atol=5e-5)


@pytest.mark.parametrize("kernel", [spectral_products, gauss_products])
@pytest.mark.parametrize("inputs", [11, 20])
def test_any_cut_gives_the_same_bits(kernel: Kernel, inputs: int) -> None:
    x, w, whole = operands(4, 19, inputs, 3)
    cut = Vectors(4, 19, 3)
    kernel.run(**words(x, w, whole, inputs))
    for low, high in ((0, 1), (1, 4)):
        part = {**x.words("x", "tile", low), **w.words("w", "input", low)}
        part |= {**cut.words("y", "tile", low), "frequencies": high - low}
        kernel.run(**(words(x, w, cut, inputs) | part))
    np.testing.assert_array_equal(cut.memory, whole.memory)


@pytest.mark.parametrize(("rows", "points"), [(5, 6), (6, 5), (7, 7), (1, 8)])
def test_mirrored_frequencies_are_left_out(rows: int, points: int) -> None:
    """By tasks that begin anywhere; all others are what they are without."""
    grid = np.indices((2, rows, points // 2 + 1))
    edge = (grid[2] == 0) | (2 * grid[2] == points)
    kept = ~(edge & (2 * grid[1] > rows)).ravel()
    x, w, y = operands(len(kept), 5, 3, 1)
    exchanged, sums = Vectors(len(kept), 5, 1), Vectors(len(kept), 3, 1)
    room = np.zeros(backward_floats(3), np.float32)
    back = {"images": 3, "scratch": room, "scratch_worker": 0}
    cuts = [
        (first, {"frequencies": end - first, "first": first, "size_y": rows, "size_x": points})
        for first, end in ((0, 3), (3, len(kept)))
    ]
    for first, cut in cuts:
        cut |= {**x.words("x", "tile", first), **w.words("w", "input", first)}
        spectral_products.run(**(words(x, w, y, 3) | cut | y.words("y", "tile", first)))
        cut |= exchanged.words("y", "tile", first)
        backward_products.run(**(words(x, w, exchanged, 3, **back) | cut))
    for first, cut in cuts:
        cut |= {**sums.words("w", "input", first), **y.words("y", "tile", first)}
        spectral_gradients.run(**(words(x, sums, y, 3, accumulate=0) | cut))
    a, b = x.complex()[..., :3], w.complex()
    np.testing.assert_allclose(y.complex()[kept], (a @ b)[kept], atol=1e-4)
    wanted = a[kept] @ b[kept][..., :3].conj().swapaxes(1, 2)
    np.testing.assert_allclose(exchanged.complex()[kept][..., :3], wanted, atol=1e-4)
    wanted = a[kept].swapaxes(1, 2) @ y.complex()[kept].conj()
    np.testing.assert_allclose(sums.complex()[kept], wanted, atol=1e-3)
    for written in (y, exchanged, sums):
        assert (written.memory[~kept] == GUARD).all()


class Rows:
    """[first][part][second * images]: all real parts before all imaginary ones, and a gap behind each."""

    def __init__(self, first: int, second: int, images: int, seed: int | None = None) -> None:
        self.memory = np.full((first, 2, second * images + LANES), GUARD, np.float32)
        self.images, self.shape = images, (first, second, images)
        if seed is not None:
            shape = (first, 2, second * images)
            self.memory[..., :-LANES] = np.random.default_rng(seed).standard_normal(shape)

    def complex(self) -> np.ndarray:
        inner = self.memory[..., :-LANES].astype(np.float64)
        return (inner[:, 0] + 1j * inner[:, 1]).reshape(self.shape)

    def words(self, name: str) -> dict[str, int]:
        parts = self.memory.shape[2]
        return {
            name: self.memory, f"{name}_frequency": 2 * parts, f"{name}_tile": self.images,
            f"{name}_block": LANES, f"{name}_parts": parts,
        }  # fmt: skip


PACKED = [(1, 10, 3), (7, LANES + 4, 10), (13, 5, LANES + 1), (25, 2 * LANES + 3, 2 * LANES + 2)]


@pytest.mark.parametrize(("tiles", "inputs", "outputs"), PACKED)
def test_packed_tiles(tiles: int, inputs: int, outputs: int) -> None:
    blocks = -(-outputs // LANES)
    x, y = Rows(3, tiles, inputs, seed=1), Rows(3, tiles, outputs)
    w = Vectors(3, inputs, blocks, seed=2)
    given = {
        "frequencies": 3, "first": 0, "size_y": 0, "size_x": 0, "tiles": tiles, "inputs": inputs,
        "blocks": blocks, "lanes": (outputs - 1) % LANES + 1, **x.words("x"), **w.words("w", "input"), **y.words("y"),
    }  # fmt: skip
    for products, gradients in zip(
        ways(spectral_products, gauss_products, blocks),
        ways(spectral_gradients, gauss_gradients, blocks),
        strict=True,
    ):
        products.run(**given)
        wanted = np.einsum("fti,fio->fto", x.complex(), w.complex()[..., :outputs])
        np.testing.assert_allclose(y.complex(), wanted, atol=2e-5 * np.sqrt(inputs))
        assert (y.memory[..., -LANES:] == GUARD).all()
        sums = Vectors(3, inputs, blocks)
        gradients.run(**{**given, **sums.words("w", "input")}, accumulate=0)
        wanted = np.einsum("fti,fto->fio", x.complex(), y.complex().conj())
        np.testing.assert_allclose(sums.complex()[..., :outputs], wanted, rtol=2e-5, atol=1e-3)
        assert not sums.complex()[..., outputs:].any()
