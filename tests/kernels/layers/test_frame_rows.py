"""Frames of images and gradients folded back from them, against `layers.borders` in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from blocked_images import GUARD, Blocked, normal
from znnpy_kernels.layers.padding import REFLECT, REPLICATE, ZEROS, fold_rows, frame_rows
from znnpy_kernels.simd.lanes import LANES

from znnpy.layers.windows import folded, framed

RULES = {"zeros": ZEROS, "replicate": REPLICATE, "reflect": REFLECT}
SHAPE = (3, 4, 5)
SIDES = [
    ((1, 1), (1, 1), (1, 1)),
    ((2, 0), (0, 3), (1, 4)),
    ((0, 0), (3, 3), (0, 0)),
    ((2, 2), (0, 0), (4, 0)),
]
CASES = [(border, sides, lanes) for border in RULES for sides in SIDES for lanes in (1, LANES)]


def words(border, sides, lanes):
    found = {"lanes": lanes, "rule": RULES[border]}
    for axis, size, (before, after) in zip("zyx", SHAPE, sides, strict=True):
        found |= {f"size_{axis}": size, f"before_{axis}": before, f"after_{axis}": after}
    return found


def grown(sides):
    return tuple(n + before + after for n, (before, after) in zip(SHAPE, sides, strict=True))


def inside(sides):
    return tuple(slice(b, b + n) for n, (b, _) in zip(SHAPE, sides, strict=True))


def image_in(framed_image, sides, name):
    """Words of the image's first voxel in a framed one."""
    (z, _), (y, _), (x, _) = sides
    return framed_image.rows(name) | {name: framed_image.address(0, z, y, x)}


def expected(values, sides, border):
    """What NumPy makes of (z, y, x, lane)."""
    return np.moveaxis(framed(np.moveaxis(values, -1, 0)[None], sides, border)[0], 0, -1)


@pytest.mark.quick(12)
@pytest.mark.parametrize(("border", "sides", "lanes"), CASES)
@pytest.mark.parametrize("copies", [False, True])
def test_frames(border, sides, lanes, copies):
    target, values = Blocked(lanes, grown(sides), lanes=lanes), normal(1, *SHAPE, lanes)
    source = Blocked(lanes, SHAPE, lanes=lanes) if copies else target
    (source.view[0] if copies else target.view[0][inside(sides)])[...] = values
    (over, under), (ahead, behind), _ = sides
    given = {
        **(source.rows("source") if copies else image_in(target, sides, "source")),
        **image_in(target, sides, "target"),
        **words(border, sides, lanes),
        "copies": int(copies),
    }
    for z0, z1 in ((-over, 1), (1, SHAPE[0] + under)):
        frame_rows.run(**given, z0=z0, z1=z1, y0=-ahead, y1=SHAPE[1] + behind)
    assert np.array_equal(target.view[0], expected(values, sides, border))
    assert target.gaps_intact()


def test_a_task_fills_its_rows_alone():
    sides = SIDES[0]
    target = Blocked(LANES, grown(sides))
    target.view[0][inside(sides)] = values = normal(1, *SHAPE, LANES)
    frame_rows.run(
        **image_in(target, sides, "source"), **image_in(target, sides, "target"),
        **words("replicate", sides, LANES), z0=1, z1=2, y0=-1, y1=2, copies=0,
    )  # fmt: skip
    wanted = np.full_like(target.view[0], GUARD)
    wanted[inside(sides)] = values
    wanted[2, :3] = expected(values, sides, "replicate")[2, :3]
    assert np.array_equal(target.view[0], wanted)


@pytest.mark.quick(8)
@pytest.mark.parametrize(("border", "sides", "lanes"), CASES)
def test_gradients_are_folded(border, sides, lanes):
    source, target = Blocked(lanes, grown(sides), lanes=lanes), Blocked(lanes, SHAPE, lanes=lanes)
    source.view[0] = gradient = normal(2, *grown(sides), lanes)
    for z0, z1 in ((0, 2), (2, SHAPE[0])):
        for y0, y1 in ((0, 1), (1, SHAPE[1])):
            fold_rows.run(
                **image_in(source, sides, "source"), **target.rows("target"),
                **words(border, sides, lanes), z0=z0, z1=z1, y0=y0, y1=y1,
            )  # fmt: skip
    wanted = folded(np.moveaxis(gradient, -1, 0)[None].astype(np.float64), sides, border)[0]
    np.testing.assert_allclose(target.view[0], np.moveaxis(wanted, 0, -1), rtol=1e-5, atol=1e-5)
    assert target.gaps_intact()
