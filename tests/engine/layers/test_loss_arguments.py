"""Rows and planes of a loss that follow each other in memory are one row to its kernel."""

from __future__ import annotations

import pytest

from znnpy.engine.layers.loss_arguments import joined

PLANES, ROWS, WIDTH, LANES = 3, 5, 7, 8
VOXELS = PLANES * ROWS * WIDTH


def words(**changed: int) -> dict[str, float]:
    """Argument words of images without gaps, but for those `changed`."""
    found: dict[str, float] = {"planes": PLANES, "rows": ROWS, "width": WIDTH, "lanes": LANES}
    for image, step in (("output", LANES), ("gradient", LANES), ("target", 1), ("weight", 1)):
        found |= {image: 64, f"{image}_y": step * WIDTH, f"{image}_z": step * WIDTH * ROWS}
    return found | changed


def extents(found: dict[str, float]) -> tuple[float, float, float]:
    return found["planes"], found["rows"], found["width"]


def test_rows_without_gaps_are_one() -> None:
    given = words()
    found = joined(given)
    assert extents(found) == (1, 1, VOXELS)
    assert {**found, "planes": PLANES, "rows": ROWS, "width": WIDTH} == given
    assert extents(given) == (PLANES, ROWS, WIDTH)


@pytest.mark.parametrize("image", ["output", "gradient", "target", "weight"])
def test_gaps_between_rows_are_left(image: str) -> None:
    assert extents(joined(words(**{f"{image}_y": 2 * LANES * WIDTH}))) == (PLANES, ROWS, WIDTH)


@pytest.mark.parametrize("image", ["output", "gradient", "target", "weight"])
def test_gaps_between_planes_are_left(image: str) -> None:
    found = joined(words(**{f"{image}_z": 2 * LANES * WIDTH * ROWS}))
    assert extents(found) == (PLANES, 1, ROWS * WIDTH)


def test_strides_of_one_row_or_plane_do_not_count() -> None:
    assert extents(joined(words(rows=1, output_y=0, output_z=LANES * WIDTH, gradient_z=LANES * WIDTH,
                                target_z=WIDTH, weight_z=WIDTH))) == (1, 1, PLANES * WIDTH)  # fmt: skip
    assert extents(joined(words(planes=1, output_z=0))) == (1, 1, ROWS * WIDTH)


def test_a_gradient_that_is_not_wanted_has_no_strides() -> None:
    assert extents(joined(words(gradient=0, gradient_y=0, gradient_z=0))) == (1, 1, VOXELS)
