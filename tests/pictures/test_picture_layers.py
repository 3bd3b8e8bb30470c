"""Slices of volumes of one place: what is guessed, where layers lie, what the pixels show."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from znnpy.data.volume import ArrayVolume
from znnpy.errors import VolumeError
from znnpy.pictures import napari_viewer
from znnpy.pictures import overlays as module
from znnpy.pictures.overlays import Layer, draw_slices, kind_of, title_of
from znnpy.pictures.panels import Panel, length, scale_bar, unit_of

RNG = np.random.default_rng(0)
VOXEL = (40.0, 4.0, 4.0)


def volume(array: Any, name: str = "a.h5:x", offset: Any = None) -> ArrayVolume:
    return ArrayVolume(np.asarray(array), name, VOXEL, offset)


@pytest.mark.parametrize(
    ("dtype", "name", "kind"),
    [
        (np.uint8, "a.h5:volumes/raw", "raw"),
        (np.uint16, "stack.tif", "raw"),
        (np.float32, "a.h5:out", "prediction"),
        (np.uint8, "a.h5:prediction", "prediction"),
        (np.uint64, "a.h5:x", "labels"),
        (np.int32, "gt.tif", "labels"),
        (np.uint16, "a.h5:volumes/labels", "labels"),
        (np.bool_, "a.h5:x", "labels"),
    ],
)
def test_kinds(dtype: Any, name: str, kind: str) -> None:
    assert kind_of(volume(np.zeros((2, 3, 4), dtype), name)) == kind


@pytest.mark.parametrize(
    ("low", "high", "name", "kind"),
    [
        (0, 1, "a.tif", "prediction"),
        (-0.1, 1.2, "a.h5:prediction", "prediction"),
        (0, 255, "stack.tif", "raw"),
        (-9, 9, "a.h5:prediction", "raw"),
        (0, 1, "a.h5:volumes/raw", "raw"),
        (np.nan, np.nan, "a.h5:x", "prediction"),
    ],
)
def test_floats_are_predicted_where_they_may_be(
    low: float, high: float, name: str, kind: str
) -> None:
    """An image of 0 to 255 that was drawn from 0 to 1 would be white."""
    array = np.array([[[low, np.nan, high]]], np.float32)
    assert kind_of(volume(array, name)) == kind


@pytest.mark.parametrize("kind", ["raw", "prediction"])
def test_what_is_not_finite_is_dark_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    array = np.linspace(0.2, 1, 4 * 5 * 6, dtype=np.float32).reshape(4, 5, 6)
    whole = panels_of([Layer(kind, volume(array), "x")], tmp_path, monkeypatch, count=4)
    array[1, 2, 3], array[1, 2, 4] = np.nan, np.inf
    found = panels_of([Layer(kind, volume(array), "x")], tmp_path, monkeypatch, count=4)
    for place, ((_, (before,), _), (_, (now,), _)) in enumerate(zip(whole, found, strict=True)):
        assert ("2 values are not finite" in now.note) == (place == 1)
        image = now.image.copy()
        if place == 1:
            assert image[2, 3] == image[2, 4] == 0
            image[2, 3:5] = before.image[2, 3:5]
        np.testing.assert_allclose(image, before.image, atol=0.02)


def test_a_mask_can_be_a_raw_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mask = RNG.random((2, 5, 6)) > 0.5
    ((_, (panel,), _),) = panels_of(
        [Layer("raw", volume(mask), "x")], tmp_path, monkeypatch, count=1
    )
    assert np.array_equal(panel.image, mask[1])


def panels_of(
    layers: list[Layer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> Any:
    """What would be drawn: (caption, panels, voxels) of each slice."""
    seen = []
    monkeypatch.setattr(module, "draw", lambda path, *rest: seen.append(rest))
    draw_slices(layers, tmp_path / "out", **more)
    return [(caption, panels, voxels) for panels, caption, voxels in seen]


def test_layers_lie_where_their_offsets_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = RNG.integers(1, 9, (6, 20, 30)).astype(np.uint32)
    raw = volume(whole.astype(np.uint8), "d/r.h5:volumes/raw")
    part = volume(whole[1:5, 3:18, 4:27], "l.h5:labels", (40.0, 12.0, 16.0))
    layers = [Layer("raw", raw, "raw"), Layer("labels", part, "labels")]
    found = panels_of(layers, tmp_path, monkeypatch, count=4)
    assert [caption.split(" (")[0] for caption, *_ in found] == [
        f"r.h5:volumes/raw, z = {z}" for z in (1, 2, 3, 4)
    ]
    assert "(120 nm), voxels of 40 x 4 x 4 nm" in found[2][0]
    for place, (_, panels, voxels) in zip((1, 2, 3, 4), found, strict=True):
        assert panels[0].image.shape == (15, 23)
        ids = whole[place, 3:18, 4:27]
        assert np.array_equal(panels[0].image, module.stretched(ids, (1, 8)))
        assert np.array_equal(panels[1].image, module.overlay(panels[0].image, ids))
        assert voxels.size == (4, 4)
    (_, panels, voxels), *_ = panels_of(layers, tmp_path, monkeypatch, count=1, axis="y")
    assert (panels[0].image.shape, voxels.size, voxels.axes) == ((4, 23), (40, 4), ("z", "x"))


def test_predictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = volume((np.arange(24).reshape(2, 3, 4) * 10).astype(np.uint8))
    six = volume(RNG.random((6, 2, 3, 4)))
    six.neighbours = ((0, 0, -9), (0, 0, -1), (0, -1, 0), (-1, 0, 0), (-2, 0, 0), (0, 9, 0))
    four = volume(RNG.random((4, 2, 3, 4)))
    layers = [Layer("prediction", v, "p") for v in (one, six, four)]
    ((_, panels, _),) = panels_of(layers, tmp_path, monkeypatch, count=1)
    np.testing.assert_allclose(panels[0].image, one.array[0, 1] / 255, rtol=1e-6)
    assert panels[0].bar
    np.testing.assert_allclose(
        panels[1].image, np.moveaxis(six.array[[3, 2, 1], 1], 0, -1), rtol=1e-6
    )
    assert panels[1].note == "red z, green y, blue x; 6 channels in all"
    np.testing.assert_allclose(panels[2].image, four.array[:, 1].mean(axis=0), rtol=1e-6)
    assert panels[2].note == "mean of 4 channels"


@pytest.mark.parametrize(("classes", "first"), [(2, None), (4, None), (3, 0), (3, 1), (4, 2)])
def test_probabilities_of_classes_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: int, first: int | None
) -> None:
    """Their mean is the same everywhere; a class has the colour of its number in a panel of labels."""
    ids = RNG.integers(0, classes, (2, 3, 4))
    known = volume(np.moveaxis(np.eye(classes, dtype=np.float32)[ids], -1, 0))
    known.first_class = first
    numbers = (ids + (first or 0)).astype(np.uint8)
    layers = [Layer("prediction", known, "p"), Layer("labels", volume(numbers), "l")]
    ((_, (seen, labels), _),) = panels_of(layers, tmp_path, monkeypatch, count=1)
    np.testing.assert_allclose(seen.image, labels.image, atol=1e-6)
    assert seen.note == f"{classes} classes by their shares, from {first or '0: black'}"
    assert not seen.bar


@pytest.mark.parametrize("count", [0, 1, 2])
def test_labels_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    ids = np.zeros((1, 2, 3), np.uint32)
    ids[0, 0, :count] = np.arange(count) + 7
    layers = [Layer("labels", volume(ids), "l")]
    ((_, (panel,), _),) = panels_of(layers, tmp_path, monkeypatch, count=1)
    assert panel.note == ("0 labels", "1 label", "2 labels")[count] + " in this slice"


def test_large_slices_are_thinned_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 10)
    raw = volume(np.arange(30 * 25).reshape(1, 30, 25).astype(np.uint16))
    ((_, panels, voxels),) = panels_of([Layer("raw", raw, "r")], tmp_path, monkeypatch, count=1)
    assert panels[0].image.shape == (10, 9)
    assert voxels.size == (12, 12)


def test_volumes_that_do_not_belong_together(tmp_path: Path) -> None:
    raw = volume(np.zeros((4, 5, 6), np.uint8), "r.h5:raw")
    far = volume(np.zeros((4, 5, 6), np.uint8), "l.h5:l", (4000.0, 0, 0))
    with pytest.raises(VolumeError, match=r"r\.h5:raw and l\.h5:l share no voxel"):
        draw_slices([Layer("raw", raw, ""), Layer("labels", far, "")], tmp_path / "v", 1)
    small = volume(np.zeros((4, 5, 5), np.uint8), "l.h5:l")
    with pytest.raises(VolumeError, match="must be equal"):
        draw_slices([Layer("raw", raw, ""), Layer("labels", small, "")], tmp_path / "v", 1)
    assert not (tmp_path / "v").exists()


@pytest.mark.quick(1)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("axis", ["z", "x"])
def test_drawn(tmp_path: Path, count: int, axis: Any) -> None:
    arrays = [RNG.integers(0, 255, (4, 20, 50)).astype(t) for t in (np.uint8, np.uint64) * 3]
    layers = [Layer(kind_of(volume(a)), volume(a), f"layer {i}") for i, a in enumerate(arrays)]
    paths = draw_slices(layers[:count], tmp_path, 2, axis)
    assert [p.name for p in paths] == sorted(p.name for p in tmp_path.iterdir())
    image = imread(paths[0])
    assert image[..., :3].std() > 0.05
    assert max(image.shape) < 4000


def test_pixels_are_as_high_as_voxels(tmp_path: Path) -> None:
    """A slice across y of 40 x 4 x 4 nm voxels: 5 by 50 voxels are a square of 200 nm."""
    dark = volume(np.zeros((5, 3, 50), np.uint8))
    (path,) = draw_slices([Layer("raw", dark, "raw")], tmp_path, 1, "y")
    black = np.argwhere(imread(path)[..., :3].max(axis=-1) < 0.01)
    height, width = black.max(axis=0) - black.min(axis=0)
    assert height / width == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize(("width", "bar"), [(300.0, 100.0), (299.0, 50.0), (6e4, 2e4), (0.7, 0.2)])
def test_scale_bar(width: float, bar: float) -> None:
    assert scale_bar(width) == pytest.approx(bar)


def test_lengths_and_titles() -> None:
    assert [length(n) for n in (500, 2000, 5e6)] == ["500 nm", "2 µm", "5 mm"]
    assert [unit_of(n) for n in (999, 1e3, 2.5e6)] == [("nm", 1), ("µm", 1e3), ("mm", 1e6)]
    assert title_of(volume(np.zeros((1, 2, 3)), "/data/a.h5:x/y")) == "a.h5:x/y"
    assert title_of(volume(np.zeros((1, 2, 3)), "/data/a.tif")) == "a.tif"
    # Fonts take no surrogates.
    assert title_of(volume(np.zeros((1, 2, 3)), "/data/\udce9.tif")) == "\\udce9.tif"
    assert Panel("t", np.zeros((2, 2))).note == ""


class Viewer:
    """Notes what would be shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, Any, dict[str, Any]]] = []

    def add_image(self, array: Any, **named: Any) -> None:
        self.shown.append(("image", array, named))

    def add_labels(self, array: Any, **named: Any) -> None:
        self.shown.append(("labels", array, named))


def test_napari_gets_sizes_and_places() -> None:
    viewer, labels = Viewer(), np.ones((2, 3, 4), np.uint64)
    placed = volume(labels, offset=(40.0, 0.0, 8.0))
    napari_viewer.add(viewer, Layer("labels", placed, "cells"))
    napari_viewer.add(viewer, Layer("raw", volume(np.zeros((2, 2, 3, 4), np.uint8)), "raw"))
    flat = volume(np.full((2, 3, 4), 0.5, np.float32))
    napari_viewer.add(viewer, Layer("raw", flat, "flat"))
    napari_viewer.add(viewer, Layer("prediction", flat, "p"))
    (kind, array, named), (_, channels, more), (_, plain, grey), (_, _, fire) = viewer.shown
    assert (kind, named) == ("labels", {"name": "cells", "scale": VOXEL, "translate": (40, 0, 8)})
    assert np.array_equal(array, labels)
    assert (channels.shape, more["channel_axis"]) == ((2, 2, 3, 4), 0)
    assert more["name"] == ["raw 0", "raw 1"]
    assert (plain.shape, grey["name"], "colormap" in grey) == ((2, 3, 4), "flat", False)
    assert fire["contrast_limits"] == (0, 1)


def test_napari_missing_or_without_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "napari", None)
    with pytest.raises(VolumeError, match="pip install"):
        napari_viewer.show([])
    monkeypatch.setitem(sys.modules, "napari", SimpleNamespace())
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(VolumeError, match="no display"):
        napari_viewer.show([])


def test_lazy_array_reads_what_is_asked_for() -> None:
    array = RNG.random((2, 5, 6, 7))
    lazy = napari_viewer._Lazy(volume(array))
    assert (lazy.shape, lazy.dtype) == (array.shape, array.dtype)
    keys: list[tuple[Any, ...]] = [
        (slice(1, 2), slice(0, 5, 2), slice(3, 4), slice(None)),
        (1, slice(None), 4, slice(2, 7, 3)),
        (0, 4, 0, 6),
        (slice(None), slice(2, 2), 1, slice(None)),
    ]
    for key in keys:
        found = lazy[key]
        assert found.shape == array[key].shape
        assert np.array_equal(found, array[key])
