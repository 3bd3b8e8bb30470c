"""Cases for the direct kernels: tensors with gaps and guards, float64 references, one run of each pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
from numpy.lib.stride_tricks import as_strided
from znnpy_kernels.direct.correlation import VALID, full_words, tap_words
from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.direct.forward import forward_kernel, gradient_halo
from znnpy_kernels.direct.packed_filters import (
    block_offset,
    group_offset,
    output_groups,
    pack_filters,
    packed_size,
    transpose_filters,
    unpack_filters,
)
from znnpy_kernels.direct.weight_gradient import (
    OPEN,
    earlier_words,
    weight_gradient_kernel,
    zeros_words,
)
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES

GUARD = np.float32(12345.0)
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Case:
    """One layer: images, output size, filter size, stride, sparsity (z, y, x) and planar source.

    `before`, `more`: voxels of padding before the source's, and of the source that no tap meets, or
    fewer voxels behind than taps, which are padding too.
    """

    inputs: int
    outputs: int
    size: Triple
    taps: Triple
    stride: Triple = (1, 1, 1)
    sparsity: Triple = (1, 1, 1)
    planar: bool = False
    before: Triple = (0, 0, 0)
    more: Triple = (0, 0, 0)

    @property
    def source_lanes(self) -> int:
        return 1 if self.planar else LANES

    @property
    def source_size(self) -> Triple:
        z, y, x = (
            (n - 1) * s + (k - 1) * d + 1
            for n, k, s, d in zip(self.size, self.taps, self.stride, self.sparsity, strict=True)
        )
        return z, y, x

    @property
    def tap_count(self) -> int:
        return int(np.prod(self.taps))

    def window(self, tap: Triple) -> tuple[slice, ...]:
        """The source voxels that one tap reads."""
        return (
            slice(None),
            *(
                slice(k * d, k * d + (n - 1) * s + 1, s)
                for k, d, n, s in zip(tap, self.sparsity, self.size, self.stride, strict=True)
            ),
        )


class Tensor:
    """Images in blocks of `lanes`, with gaps between rows, planes and blocks; NaN or guards between."""

    gap = 1  # voxels between rows

    def __init__(self, images: int, size: Triple, lanes: int, fill: float, halo: int = 0) -> None:
        z, y, x = size
        self.blocks = -(-images // lanes)
        self.x = lanes
        self.y = (x + 2 * halo + self.gap) * lanes
        self.z = y * self.y + 2 * lanes
        self.block = z * self.z + 3 * lanes
        self.buffer = np.full(self.blocks * self.block + 5 * lanes + 64, fill, np.float32)
        misplaced = (-address(self.buffer) % 64) // 4
        self.start = misplaced + (2 + halo) * lanes
        self.halo = halo
        self.images = images
        self.shape = (self.blocks, lanes, z, y, x)
        if halo:
            self.padded()[...] = 0

    @property
    def address(self) -> int:
        return address(self.buffer) + 4 * self.start

    def whole(self) -> np.ndarray:
        """All lanes as (block, lane, z, y, x), a view."""
        return self._view(self.start, self.shape)

    def padded(self) -> np.ndarray:
        """All lanes with the halo along x, a view."""
        shape = (*self.shape[:4], self.shape[4] + 2 * self.halo)
        return self._view(self.start - self.halo * self.x, shape)

    def _view(self, start: int, shape: tuple[int, ...]) -> np.ndarray:
        strides = tuple(4 * s for s in (self.block, 1, self.z, self.y, self.x))
        return as_strided(self.buffer[start:], shape, strides)

    def write(self, values: np.ndarray) -> None:
        """Set the images; lanes beyond them become 0."""
        lanes = np.zeros((self.blocks * self.x, *values.shape[1:]), np.float32)
        lanes[: self.images] = values
        self.whole()[...] = lanes.reshape(self.shape)

    def read(self) -> np.ndarray:
        """The images as (image, z, y, x), and a check that all other lanes are 0."""
        lanes = self.whole().reshape(-1, *self.shape[2:])
        assert not lanes[self.images :].any(), "lanes beyond the last image must stay 0"
        return lanes[: self.images]

    def check_guards(self) -> None:
        """Fail if anything but the images has changed since the buffer was filled with GUARD."""
        rest = self.buffer.copy()
        inside = np.zeros(rest.shape, bool)
        strides = tuple(s for s in (self.block, 1, self.z, self.y, self.x))
        as_strided(inside[self.start :], self.shape, strides)[...] = True
        assert (rest[~inside] == GUARD).all(), "written outside the target"


def reference_forward(case: Case, source: np.ndarray, filters: np.ndarray) -> np.ndarray:
    result = np.zeros((case.outputs, *case.size))
    for tap in product(*map(range, case.taps)):
        piece = source[case.window(tap)].astype(np.float64)
        result += np.tensordot(filters[(..., *tap)].astype(np.float64), piece, 1)
    return result


def reference_data_gradient(case: Case, gradient: np.ndarray, filters: np.ndarray) -> np.ndarray:
    result = np.zeros((case.inputs, *case.source_size))
    for tap in product(*map(range, case.taps)):
        weights = filters[(..., *tap)].astype(np.float64)
        result[case.window(tap)] += np.tensordot(weights.T, gradient.astype(np.float64), 1)
    return result


def reference_weight_gradient(case: Case, source: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    result = np.zeros((case.outputs, case.inputs, *case.taps))
    for tap in product(*map(range, case.taps)):
        piece = source[case.window(tap)].astype(np.float64)
        axes = ((1, 2, 3), (1, 2, 3))
        result[(..., *tap)] = np.tensordot(gradient.astype(np.float64), piece, axes)
    return result


def cuts(length: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """A random division of 0..length into ranges."""
    inner = np.flatnonzero(rng.random(max(0, length - 1)) < 0.4) + 1
    return list(pairwise([0, *inner.tolist(), length]))


def random_values(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def correlate(
    case: Case,
    source: Tensor,
    filters: np.ndarray,
    channels: tuple[int, int],
    target: Tensor,
    rng: np.random.Generator,
    backward: bool = False,
    accumulate: bool = False,
    epilogue: Epilogue | None = None,
) -> None:
    """Run the forward kernels over a whole layer in random tasks, forward or as data gradient."""
    inputs, outputs = channels
    stride = (1, 1, 1) if backward else case.stride
    steps = (source.z, source.y, source.x)
    if backward:
        places = full_words(
            case.stride, case.sparsity, case.before, case.size, halo=bool(source.halo)
        )
        places |= tap_words(places, steps)
    else:
        apart = (d * s for d, s in zip(case.sparsity, steps, strict=True))
        places = VALID | dict(zip(("tap_z", "tap_y", "tap_x"), apart, strict=True))
    z, y, x = target.shape[2:]
    for group, vectors in enumerate(output_groups(outputs)):
        kernel = forward_kernel(vectors, stride[2] * source.x)
        for (z0, z1), (y0, y1) in product(cuts(z, rng), cuts(y, rng)):
            kernel.run(
                source=source.address,
                source_block=source.block,
                source_z=stride[0] * source.z,
                source_y=stride[1] * source.y,
                source_x=stride[2] * source.x,
                source_lanes=source.x,
                channels=inputs,
                taps_z=case.taps[0],
                taps_y=case.taps[1],
                taps_x=case.taps[2],
                filters=address(filters) + 4 * group_offset(group, inputs, case.tap_count),
                target=target.address + 4 * 2 * group * target.block,
                target_block=target.block,
                target_z=target.z,
                target_y=target.y,
                z0=z0,
                z1=z1,
                y0=y0,
                y1=y1,
                width=x,
                **places,
                accumulate=accumulate,
                **(epilogue.words(2 * group, vectors) if epilogue else PLAIN),
            )


class Epilogue:
    """Bias and slope of a forward pass, or values and slope of a data gradient; collects bias sums."""

    def __init__(
        self, images: int, slope: float, rng: np.random.Generator, values: Tensor | None = None
    ) -> None:
        self.slope, self.values, self.images = slope, values, images
        width = 1 if values is not None and values.x == 1 else LANES
        self.bias = np.zeros(-(-images // LANES) * LANES, np.float32)
        self.bias[:images] = 0 if values else rng.standard_normal(images)
        self.width = width
        self.sums: list[tuple[int, np.ndarray]] = []

    def words(self, block: int, blocks: int) -> dict[str, float]:
        """Argument words of one task on some blocks of the target."""
        if not self.values:
            return PLAIN | {"bias": address(self.bias) + 4 * LANES * block, "slope": self.slope}
        self.sums.append((block, np.full(blocks * LANES, np.nan, np.float32)))
        return PLAIN | {
            "slope": self.slope,
            "output": self.values.address + 4 * block * self.values.block,
            "output_block": self.values.block,
            "output_z": self.values.z,
            "output_y": self.values.y,
            "bias_gradient": self.sums[-1][1],
        }

    def apply(self, sums: np.ndarray) -> np.ndarray:
        """What the reference makes of the sums."""
        if not self.values:
            sums = sums + self.bias[: self.images, None, None, None]
        reference = self.values.read() if self.values else sums
        return np.where(reference <= 0, sums * self.slope if self.slope else 0.0, sums)

    def bias_gradient(self) -> np.ndarray:
        """The sum of what the tasks left, by output image."""
        total = np.zeros(self.bias.size, np.float64)
        for block, sums in self.sums:
            total[block * LANES : block * LANES + sums.size] += sums
        assert not total[self.images :].any()
        return total[: self.images]


def check_forward(
    case: Case,
    rng: np.random.Generator,
    accumulate: bool = False,
    special: float = 0.0,
    slope: float | None = None,
) -> np.ndarray:
    """Compare with the reference, and return what was made.

    The source's first voxel holds `special`; `slope`: with an epilogue.
    """
    source = Tensor(case.inputs, case.source_size, case.source_lanes, np.nan)
    values = random_values(rng, case.inputs, *case.source_size)
    values[:, 0, 0, 0] = special
    source.write(values)
    filters = random_values(rng, case.outputs, case.inputs, *case.taps)
    target = Tensor(case.outputs, case.size, LANES, GUARD)
    expected = reference_forward(case, values, filters)
    if accumulate:
        before = random_values(rng, case.outputs, *case.size)
        target.write(before)
        expected += before
    epilogue = None
    if slope is not None:
        epilogue = Epilogue(case.outputs, slope, rng)
        expected = epilogue.apply(expected)
    packed = pack_filters(filters, case.source_lanes)
    channels = (case.inputs, case.outputs)
    correlate(case, source, packed, channels, target, rng, accumulate=accumulate, epilogue=epilogue)
    target.check_guards()
    np.testing.assert_allclose(target.read(), expected, rtol=1e-4, atol=2e-4)
    return target.read()


def check_data_gradient(case: Case, rng: np.random.Generator, slope: float | None = None) -> None:
    halo = gradient_halo(case.taps[2], case.sparsity[2]) if max(case.stride) == 1 else 0
    gradient = Tensor(case.outputs, case.size, LANES, np.nan, halo)
    values = random_values(rng, case.outputs, *case.size)
    gradient.write(values)
    filters = random_values(rng, case.outputs, case.inputs, *case.taps)
    expected = framed(case, reference_data_gradient(case, values, filters))
    size = expected.shape[1:]
    target = Tensor(case.inputs, size, LANES, GUARD)
    backward = transposed(case, pack_filters(filters), rng)
    channels = (case.outputs, case.inputs)
    epilogue = None
    if slope is not None:
        node = Tensor(case.inputs, size, LANES, np.nan)
        node.write(random_values(rng, case.inputs, *size))
        epilogue = Epilogue(case.inputs, slope, rng, node)
        expected = epilogue.apply(expected)
    correlate(case, gradient, backward, channels, target, rng, backward=True, epilogue=epilogue)
    target.check_guards()
    np.testing.assert_allclose(target.read(), expected, rtol=1e-4, atol=2e-4)
    if epilogue:
        sums = expected.sum((1, 2, 3))
        np.testing.assert_allclose(epilogue.bias_gradient(), sums, rtol=1e-4, atol=1e-3)


def framed(case: Case, images: np.ndarray) -> np.ndarray:
    """The gradient for what the case says of a source: without its padding, with what no tap meets."""
    behind = [(0, max(0, more)) for more in case.more]
    images = np.pad(images, [(0, 0), *behind])
    z, y, x = (
        slice(before, size + min(0, more))
        for before, size, more in zip(case.before, images.shape[1:], case.more, strict=True)
    )
    return images[:, z, y, x]


def transposed(
    case: Case, forward: np.ndarray, rng: np.random.Generator, planar: bool = False
) -> np.ndarray:
    """Backward-packed filters, made by the kernel in random ranges."""
    size = packed_size(case.inputs, case.outputs, case.tap_count)
    guarded = np.full(size + 2 * LANES, GUARD, np.float32)
    backward = guarded[LANES : LANES + size]
    for o0, o1 in cuts(case.outputs, rng):
        transpose_filters.run(
            forward=forward,
            backward=backward,
            outputs=case.outputs,
            inputs=case.inputs,
            taps=case.tap_count,
            planar=planar,
            o0=o0,
            o1=o1,
        )
    assert (guarded[:LANES] == GUARD).all()
    assert (guarded[LANES + size :] == GUARD).all()
    return backward


def check_weight_gradient(
    case: Case, rng: np.random.Generator, around: tuple[int, int] = (0, 0)
) -> None:
    """`around`: voxels along z and y on both sides of the source that are known to be 0: they must not be read."""
    source = Tensor(case.inputs, case.source_size, case.source_lanes, np.nan)
    values = random_values(rng, case.inputs, *case.source_size)
    inside = tuple(slice(n, size - n) for n, size in zip(around, case.source_size, strict=False))
    inside = (slice(None), *inside)
    unread = np.full_like(values, np.nan)
    unread[inside] = values[inside]
    source.write(unread)
    values[np.isnan(unread)] = 0
    known = [
        (n, size - 2 * n if n else OPEN, dilation)
        for n, size, dilation in zip(around, case.source_size, case.sparsity, strict=False)
    ]
    gradient = Tensor(case.outputs, case.size, LANES, np.nan)
    upstream = random_values(rng, case.outputs, *case.size)
    gradient.write(upstream)
    size = packed_size(case.outputs, case.inputs, case.tap_count)
    guarded = np.full(size + 2 * LANES, GUARD, np.float32)
    packed = guarded[LANES : LANES + size]
    slabs = list(product(cuts(case.size[0], rng), cuts(case.size[1], rng)))
    for group, block in product(range(len(output_groups(case.outputs))), range(source.blocks)):
        for number, slab in enumerate(slabs):
            for rows in cuts(case.taps[0] * case.taps[1], rng):
                _weight_gradient_task(
                    case,
                    source,
                    gradient,
                    packed,
                    group,
                    block,
                    slab,
                    rows,
                    [packed][:number],
                    known,
                )
    assert (guarded[:LANES] == GUARD).all()
    assert (guarded[LANES + size :] == GUARD).all()
    shape = (case.outputs, case.inputs, *case.taps)
    expected = reference_weight_gradient(case, values, upstream)
    result = unpack_filters(packed, shape, case.source_lanes)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=3e-4)
    again = pack_filters(result, case.source_lanes)
    np.testing.assert_array_equal(again, packed, "lanes beyond the last output must be 0")


def _weight_gradient_task(
    case: Case,
    source: Tensor,
    gradient: Tensor,
    packed: np.ndarray,
    group: int,
    block: int,
    slab: tuple[tuple[int, int], tuple[int, int]],
    tap_rows: tuple[int, int],
    earlier: Sequence[np.ndarray],
    known: Sequence[Triple] = ((0, OPEN, 1), (0, OPEN, 1)),
) -> None:
    vectors = output_groups(case.outputs)[group]
    offset = group_offset(group, case.inputs, case.tap_count)
    offset += block_offset(block, vectors, case.tap_count, case.source_lanes)
    weight_gradient_kernel(vectors, source.x).run(
        source=source.address + 4 * block * source.block,
        source_z=case.stride[0] * source.z,
        source_y=case.stride[1] * source.y,
        source_x=case.stride[2] * source.x,
        source_lanes=source.x,
        channels=min(source.x, case.inputs - block * source.x),
        taps_y=case.taps[1],
        taps_x=case.taps[2],
        tap_z=case.sparsity[0] * source.z,
        tap_y=case.sparsity[1] * source.y,
        tap_x=case.sparsity[2] * source.x,
        tap_row0=tap_rows[0],
        tap_row1=tap_rows[1],
        gradient=gradient.address + 4 * 2 * group * gradient.block,
        gradient_block=gradient.block,
        gradient_z=gradient.z,
        gradient_y=gradient.y,
        z0=slab[0][0],
        z1=slab[0][1],
        y0=slab[1][0],
        y1=slab[1][1],
        width=case.size[2],
        target=address(packed) + 4 * offset,
        **zeros_words(*known),
        **earlier_words([address(sums) + 4 * offset for sums in earlier]),
    )


def check_earlier_sums(case: Case, count: int, rng: np.random.Generator) -> None:
    """A weight gradient added to the sums of others, one after the other, has the bits of such additions."""
    source = Tensor(case.inputs, case.source_size, case.source_lanes, np.nan)
    source.write(random_values(rng, case.inputs, *case.source_size))
    gradient = Tensor(case.outputs, case.size, LANES, np.nan)
    gradient.write(random_values(rng, case.outputs, *case.size))
    size = packed_size(case.outputs, case.inputs, case.tap_count)
    others = [rng.standard_normal(size).astype(np.float32) for _ in range(count)]
    whole = ((0, case.size[0]), (0, case.size[1])), (0, case.taps[0] * case.taps[1])

    def made(target: np.ndarray, earlier: Sequence[np.ndarray]) -> np.ndarray:
        for group, block in product(range(len(output_groups(case.outputs))), range(source.blocks)):
            _weight_gradient_task(case, source, gradient, target, group, block, *whole, earlier)
        return target

    wanted = made(np.full(size, GUARD, np.float32), [])
    for other in others:
        wanted = other + wanted
    target = others[-1].copy()
    np.testing.assert_array_equal(made(target, [*others[:-1], target]), wanted)


def random_case(rng: np.random.Generator, strided: bool = True, planar: bool = False) -> Case:
    """A layer of random size, small enough for the reference."""
    channels = (1, 2, 3, 5, 10, 16, 17, 33, 40)
    triple = [tuple(int(n) for n in rng.integers(1, top, 3)) for top in (5, 4, 4)]
    taps, stride, sparsity = triple
    z, y = (int(n) for n in rng.integers(1, 5, 2))
    return Case(
        inputs=int(rng.choice(channels[:4] if planar else channels)),
        outputs=int(rng.choice(channels)),
        size=(z, y, int(rng.integers(1, 36))),
        taps=taps,
        stride=stride if strided and rng.random() < 0.5 else (1, 1, 1),
        sparsity=sparsity,
        planar=planar,
    )


def random_strided(rng: np.random.Generator) -> Case:
    """A layer with strides, padding, and voxels of its source that no tap meets."""
    case = random_case(rng)
    stride = tuple(int(n) for n in rng.integers(1, 5, 3))
    reach = [
        (n - 1) * s + (k - 1) * d
        for n, s, k, d in zip(case.size, stride, case.taps, case.sparsity, strict=True)
    ]
    before = tuple(int(rng.integers(0, min(3, far) + 1)) for far in reach)
    more = tuple(
        int(rng.integers(-min(2, far - first), step))
        for far, first, step in zip(reach, before, stride, strict=True)
    )
    return replace(case, stride=stride, before=before, more=more)
