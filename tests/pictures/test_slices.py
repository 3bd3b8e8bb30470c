"""The picture shows the slice asked for, in the order named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from znnpy.errors import ShapeError
from znnpy.pictures import side_by_side
from znnpy.pictures.panels import Panel, draw, figure_of

RANDOM = np.random.default_rng(0)


@pytest.mark.quick(2)
@pytest.mark.parametrize("shape", [(5, 20, 30), (5, 20, 60), (1, 40, 10)])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_kinds_of_volumes(tmp_path: Path, shape: tuple[int, ...], channels: int) -> None:
    raw = RANDOM.integers(0, 255, shape, np.uint8)
    ids = RANDOM.integers(0, 2**60, (1, *shape), np.uint64)
    prediction = RANDOM.uniform(size=(channels, *shape)).astype(np.float32)
    side_by_side(tmp_path / "a.png", raw, ids, prediction)
    image = imread(tmp_path / "a.png")
    assert image.ndim == 3
    assert image.std() > 0.05
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.png"]


def test_images_of_truth_values_are_those_of_zeros_and_ones(tmp_path: Path) -> None:
    raw = RANDOM.integers(0, 2, (2, 20, 20)).astype(np.bool_)
    for name, image in (("a", raw), ("b", raw.astype(np.uint8))):
        side_by_side(tmp_path / f"{name}.png", image, raw[None], raw[None].astype(np.float32))
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_panels_in_order_and_the_slice_asked_for(tmp_path: Path) -> None:
    """Slice 2 of the label is all 1, of the prediction all 0.5, anywhere else 0."""
    raw = RANDOM.uniform(size=(4, 20, 20))
    label, prediction = np.zeros((4, 20, 20)), np.zeros((4, 20, 20))
    label[2], prediction[2] = 1, 0.5
    side_by_side(tmp_path / "a.png", raw, label, prediction, z=2)
    image = imread(tmp_path / "a.png")[..., :3]
    middle = image[image.shape[0] // 2]
    third = len(middle) // 3
    assert middle[:third].std() > 0.1
    assert np.allclose(middle[third + third // 2], 1)
    assert np.allclose(middle[2 * third + third // 2], 0.5, atol=0.01)
    side_by_side(tmp_path / "a.png", raw, label, prediction, z=1)
    middle = imread(tmp_path / "a.png")[..., :3][image.shape[0] // 2]
    assert np.allclose(middle[third + third // 2], 0)


def test_classes_that_share_each_voxel_are_seen(tmp_path: Path) -> None:
    """As target and as prediction: their mean would be the same everywhere."""
    raw, known = np.zeros((1, 20, 20)), np.zeros((2, 1, 20, 20), np.float32)
    known[0, :, :10], known[1, :, 10:] = 1, 1
    side_by_side(tmp_path / "a.png", raw, known, known * 0.9 + 0.05)
    image = imread(tmp_path / "a.png")[..., :3]
    third = image.shape[1] // 3
    for at in (third + third // 2, 2 * third + third // 2):
        upper, lower = image[image.shape[0] // 2 - 40, at], image[image.shape[0] // 2 + 40, at]
        assert np.abs(upper - lower).max() > 0.3


def test_objects_are_coloured_in_a_panel_of_their_own(tmp_path: Path) -> None:
    grey = np.full((4, 20, 20), 0.5)
    objects = np.zeros((4, 20, 20), np.uint32)
    objects[2, 5:15] = 7
    for given, coloured in ((None, False), (objects, True)):
        side_by_side(tmp_path / "a.png", RANDOM.uniform(size=grey.shape), grey, grey, given, z=2)
        image = imread(tmp_path / "a.png")[..., :3]
        assert (np.ptp(image, axis=-1).max() > 0.1) == coloured


def test_a_file_is_what_matplotlib_saves(tmp_path: Path) -> None:
    panels = [Panel("raw", RANDOM.uniform(size=(9, 30))), Panel("map", np.eye(9, 30), bar=True)]
    draw(tmp_path / "a.png", panels, "caption")
    figure_of(panels, "caption").savefig(tmp_path / "b.png", format="png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_refused(tmp_path: Path) -> None:
    cube = np.zeros((3, 4, 5))
    with pytest.raises(ShapeError, match=r"\(3, 4, 6\)"):
        side_by_side(tmp_path / "a.png", cube, np.zeros((3, 4, 6)), cube)
    with pytest.raises(ShapeError, match="shape"):
        side_by_side(tmp_path / "a.png", cube[0], cube, cube)
    assert list(tmp_path.iterdir()) == []
