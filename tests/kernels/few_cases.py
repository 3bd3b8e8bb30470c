"""Passes of layers with few channels on one side: one run of each against the float64 references."""

from __future__ import annotations

from itertools import product

import numpy as np
from direct_cases import (
    GUARD,
    Case,
    Epilogue,
    Tensor,
    Triple,
    cuts,
    random_values,
    reference_data_gradient,
    reference_forward,
    reference_weight_gradient,
    transposed,
)
from znnpy_kernels.direct.correlation import VALID, full_words, tap_words
from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.direct.few_channels import few_kernel
from znnpy_kernels.direct.few_channels_gradient import FEW_INPUTS, FEW_OUTPUTS
from znnpy_kernels.direct.few_channels_spread import spread_kernel, spread_scratch_floats
from znnpy_kernels.direct.forward import gradient_halo
from znnpy_kernels.direct.packed_filters import (
    block_offset,
    group_offset,
    output_groups,
    pack_filters,
    packed_size,
    unpack_filters,
)
from znnpy_kernels.layers.reduction import sum_lanes
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES


def check_few_forward(
    case: Case, rng: np.random.Generator, slope: float = 1.0, accumulate: bool = False
) -> np.ndarray:
    """Many blocked inputs, few planar outputs, which it returns."""
    source = Tensor(case.inputs, case.source_size, LANES, np.nan)
    values = random_values(rng, case.inputs, *case.source_size)
    source.write(values)
    filters = random_values(rng, case.outputs, case.inputs, *case.taps)
    target = Tensor(case.outputs, case.size, 1, GUARD)
    expected = reference_forward(case, values, filters)
    if accumulate:
        before = random_values(rng, case.outputs, *case.size)
        target.write(before)
        expected += before
    epilogue = Epilogue(case.outputs, slope, rng)
    packed = transposed(case, pack_filters(filters), rng, planar=True)
    _run(case, source, target, packed, rng, epilogue, accumulate)
    target.check_guards()
    np.testing.assert_allclose(target.read(), epilogue.apply(expected), rtol=1e-4, atol=2e-4)
    return target.read()


def check_few_data_gradient(case: Case, rng: np.random.Generator, slope: float = 1.0) -> None:
    """Gradient of few planar inputs from that of many blocked outputs."""
    halo = gradient_halo(case.taps[2], case.sparsity[2])
    gradient = Tensor(case.outputs, case.size, LANES, np.nan, halo)
    values = random_values(rng, case.outputs, *case.size)
    gradient.write(values)
    filters = random_values(rng, case.outputs, case.inputs, *case.taps)
    target = Tensor(case.inputs, case.source_size, 1, GUARD)
    node = Tensor(case.inputs, case.source_size, 1, np.nan)
    node.write(random_values(rng, case.inputs, *case.source_size))
    epilogue = Epilogue(case.inputs, slope, rng, node)
    packed = pack_filters(filters, 1)
    _run(case, gradient, target, packed, rng, epilogue)
    target.check_guards()
    expected = epilogue.apply(reference_data_gradient(case, values, filters))
    np.testing.assert_allclose(target.read(), expected, rtol=1e-4, atol=2e-4)
    sums = np.stack([sums for _, sums in epilogue.sums])
    for image in range(case.inputs):
        found = np.full(2, GUARD, np.float32)
        sum_lanes.run(
            source=address(sums) + 4 * LANES * image,
            target=found,
            count=len(sums),
            step=sums.shape[1],
        )
        np.testing.assert_allclose(found[0], expected[image].sum(), rtol=1e-4, atol=1e-3)
        assert found[1] == GUARD


def check_few_spread(
    case: Case, rng: np.random.Generator, slope: float = 1.0, crop: Triple = (0, 0, 0)
) -> None:
    """Few planar outputs from many blocked inputs, each of which meets them a stride apart: a case's data gradient.

    `crop`: voxels that are never made, on both sides.
    """
    source = Tensor(case.outputs, case.size, LANES, np.nan)
    values = random_values(rng, case.outputs, *case.size)
    source.write(values)
    filters = random_values(rng, case.outputs, case.inputs, *case.taps)
    z, y, x = (n - 2 * c for n, c in zip(case.source_size, crop, strict=True))
    target = Tensor(case.inputs, (z, y, x), 1, GUARD)
    places = full_words(case.stride, case.sparsity, crop, case.size, halo=False)
    places |= tap_words(places, (source.z, source.y, source.x))
    epilogue = Epilogue(case.inputs, slope, rng)
    floats = spread_scratch_floats(case.inputs, case.outputs, case.taps, x, places)
    kernel = spread_kernel(case.inputs)
    for (z0, z1), (y0, y1) in product(cuts(z, rng), cuts(y, rng)):
        words = {
            **places,
            **PLAIN,
            **epilogue.words(0, case.inputs),
            "source": source.address,
            "source_block": source.block,
            "source_z": source.z,
            "source_y": source.y,
            "channels": case.outputs,
            **{f"taps_{axis}": n for axis, n in zip("zyx", case.taps, strict=True)},
            "filters": pack_filters(filters, 1),
            "target": target.address,
            "target_block": target.block,
            "target_z": target.z,
            "target_y": target.y,
            "z0": z0,
            "z1": z1,
            "y0": y0,
            "y1": y1,
            "width": x,
            "scratch": np.full(floats, np.nan, np.float32),
            "scratch_worker": 0,
        }
        kernel.run(**{name: words[name] for name in kernel.fields})
    target.check_guards()
    inside = tuple(slice(c, c + n) for c, n in zip(crop, (z, y, x), strict=True))
    expected = epilogue.apply(reference_data_gradient(case, values, filters)[:, *inside])
    np.testing.assert_allclose(target.read(), expected, rtol=1e-4, atol=2e-4)


def _run(
    case: Case,
    source: Tensor,
    target: Tensor,
    packed: np.ndarray,
    rng: np.random.Generator,
    epilogue: Epilogue,
    accumulate: bool = False,
) -> None:
    back = epilogue.values is not None
    steps = (source.z, source.y, source.x)
    if back:
        places = full_words((1, 1, 1), case.sparsity, (0, 0, 0), case.size, halo=True)
        places |= tap_words(places, steps)
    else:
        apart = (d * s for d, s in zip(case.sparsity, steps, strict=True))
        places = VALID | dict(zip(("tap_z", "tap_y", "tap_x"), apart, strict=True))
    z, y, x = target.shape[2:]
    for (z0, z1), (y0, y1) in product(cuts(z, rng), cuts(y, rng)):
        few_kernel(target.images).run(
            source=source.address,
            source_block=source.block,
            source_z=source.z,
            source_y=source.y,
            channels=source.images,
            **{f"taps_{axis}": n for axis, n in zip("zyx", case.taps, strict=True)},
            **places,
            filters=packed,
            accumulate=accumulate,
            target=target.address,
            target_block=target.block,
            target_z=target.z,
            target_y=target.y,
            z0=z0,
            z1=z1,
            y0=y0,
            y1=y1,
            width=x,
            **(PLAIN | epilogue.words(0, target.images)),
        )


def check_few_gradient(case: Case, rng: np.random.Generator, few_outputs: bool) -> None:
    """Weight gradient with a planar source, or with a planar output gradient."""
    source_lanes, gradient_lanes = (LANES, 1) if few_outputs else (1, LANES)
    source = Tensor(case.inputs, case.source_size, source_lanes, np.nan)
    values = random_values(rng, case.inputs, *case.source_size)
    source.write(values)
    gradient = Tensor(case.outputs, case.size, gradient_lanes, np.nan)
    upstream = random_values(rng, case.outputs, *case.size)
    gradient.write(upstream)
    size = packed_size(case.outputs, case.inputs, case.tap_count)
    guarded = np.full(size + 2 * LANES, GUARD, np.float32)
    packed = guarded[LANES : LANES + size]
    total = np.zeros(size)
    for slab in product(cuts(case.size[0], rng), cuts(case.size[1], rng)):
        packed[...] = np.nan
        for group, block in product(range(len(output_groups(case.outputs))), range(source.blocks)):
            for rows in cuts(case.taps[0] * case.taps[1], rng):
                _task(case, source, gradient, packed, group, block, slab, rows)
        total += packed
    assert (guarded[:LANES] == GUARD).all()
    assert (guarded[LANES + size :] == GUARD).all()
    shape = (case.outputs, case.inputs, *case.taps)
    expected = reference_weight_gradient(case, values, upstream)
    result = unpack_filters(np.float32(total), shape, source_lanes)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=3e-4)
    again = pack_filters(result, source_lanes)
    np.testing.assert_array_equal(
        again, np.float32(total), "lanes beyond the last output must be 0"
    )


def _task(
    case: Case,
    source: Tensor,
    gradient: Tensor,
    packed: np.ndarray,
    group: int,
    block: int,
    slab: tuple[tuple[int, int], tuple[int, int]],
    tap_rows: tuple[int, int],
) -> None:
    vectors = output_groups(case.outputs)[group]
    offset = group_offset(group, case.inputs, case.tap_count)
    offset += block_offset(block, vectors, case.tap_count, source.x)
    planar = gradient.x == 1
    kernel = FEW_OUTPUTS[case.outputs - 1] if planar else FEW_INPUTS[case.taps[2] - 1]
    kernel.run(
        source=source.address + 4 * block * source.block,
        source_z=case.stride[0] * source.z,
        source_y=case.stride[1] * source.y,
        source_x=case.stride[2] * source.x,
        channels=min(source.x, case.inputs - block * source.x),
        vectors=vectors,
        outputs=case.outputs if planar else 0,
        taps_y=case.taps[1],
        taps_x=case.taps[2],
        tap_z=case.sparsity[0] * source.z,
        tap_y=case.sparsity[1] * source.y,
        tap_x=case.sparsity[2] * source.x,
        tap_row0=tap_rows[0],
        tap_row1=tap_rows[1],
        gradient=gradient.address + (0 if planar else 4 * 2 * group * gradient.block),
        gradient_block=gradient.block,
        gradient_z=gradient.z,
        gradient_y=gradient.y,
        z0=slab[0][0],
        z1=slab[0][1],
        y0=slab[1][0],
        y1=slab[1][1],
        width=case.size[2],
        target=address(packed) + 4 * offset,
    )
