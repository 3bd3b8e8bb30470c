"""A layer of napari predicted with a run: values, objects and classes lie where the layer lies."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nets_of_backends import PADDED, SIGMOID, run_folder

import znnpy
from znnpy.backends.napari_prediction import image_of, predict_layer, predicted
from znnpy.errors import RunError, VolumeError

RNG = np.random.default_rng(0)
ONE = {"layers": [{"conv": {"channels": 1, "size": 3}}]}
NUMBERS = {"output_shape": [4, 6, 6], **SIGMOID}


def plain(data: Any, scale: Any = None, **named: Any) -> Any:
    """What is read of a layer."""
    several = isinstance(data, list)
    axes = (data[0] if several else data).ndim - bool(named.get("rgb"))
    place = np.ones(axes) if scale is None else np.array(scale, float)
    told = {"name": "raw", "translate": 2 * place, "multiscale": several, "rgb": False}
    affine = named.pop("affine", np.eye(axes + 1))
    shift = 2 * place
    return SimpleNamespace(
        data=data,
        scale=place,
        data_to_world=lambda it: affine[:-1, :-1] @ (it * place + shift) + affine[:-1, -1],
        **{**told, **named},
    )


def of_napari(data: Any, scale: Any = None, **named: Any) -> Any:
    layers = pytest.importorskip("napari.layers")
    found = layers.Image(data, name="raw", scale=scale, **named)
    found.translate = 2 * found.scale
    return found


@pytest.fixture(params=[plain, of_napari], ids=["plain", "napari"])
def layer_of(request: Any) -> Callable[..., Any]:
    return request.param


def image(*shape: int) -> np.ndarray:
    return RNG.integers(0, 255, shape).astype(np.uint8)


def test_boundaries_become_an_image_and_objects(layer_of: Any, tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", ONE, data={"target": "boundary"}, training=NUMBERS)
    raw = image(6, 14, 12)
    layers = predicted(layer_of(raw, (40.0, 4.0, 8.0)), run, min_size=2)
    (values, named, kind), (objects, placed, labels) = layers
    assert (kind, labels) == ("image", "labels")
    wanted = znnpy.open_run(run).predict(raw, borders="mirror", quiet=True)
    np.testing.assert_array_equal(values, wanted[0])
    found = znnpy.segment(wanted, kind="boundary", min_size=2, resolution=(40.0, 4.0, 8.0))
    np.testing.assert_array_equal(objects, found.labels)
    for told in (named, placed):
        assert tuple(told["scale"]) == (40, 4, 8)
        assert tuple(told["translate"]) == (80, 8, 16)
    assert placed["name"] == "raw objects"


@pytest.mark.parametrize("scale", [(40.0, 4.0, 8.0), (-40.0, 4.0, 8.0)])
def test_turned_layers_get_predictions_that_lie_as_they_do(
    layer_of: Any, tmp_path: Path, scale: Any
) -> None:
    run = run_folder(tmp_path / "run", ONE, data={"target": "boundary"}, training=NUMBERS)
    affine = np.array([[1, 0, 0.2, 7], [0, 0.8, -0.6, 8], [0, 0.6, 0.8, -9], [0, 0, 0, 1]])
    layer = layer_of(image(6, 14, 12), scale, affine=affine)
    (_, named, _), (_, placed, _) = predicted(layer, run)
    for told in (named, placed):
        np.testing.assert_array_equal(told["scale"], scale)
        np.testing.assert_allclose(told["affine"], affine, atol=1e-9)


def test_classes_become_labels(layer_of: Any, tmp_path: Path) -> None:
    run = run_folder(
        tmp_path / "run",
        PADDED,
        data={"target": "labels"},
        training={"output_shape": [4, 6, 6], "loss": "softmax"},
    )
    raw = image(5, 9, 8)
    (values, named, _), (classes, _, kind) = predicted(layer_of(raw), run)
    assert (kind, named["channel_axis"], len(named["name"])) == ("labels", 0, 2)
    np.testing.assert_array_equal(classes, values.argmax(axis=0))
    assert len(predicted(layer_of(raw), run, objects=False)) == 1


def test_a_flat_layer_stays_flat(layer_of: Any, tmp_path: Path) -> None:
    flat = {"layers": [{"conv": {"channels": 1, "size": [1, 3, 3]}}]}
    run = run_folder(tmp_path / "run", flat, data={"target": "boundary"}, training=NUMBERS)
    raw = image(14, 12)
    for values, named, _ in predicted(layer_of(raw, (4.0, 8.0)), run, min_size=2):
        assert values.shape == raw.shape
        assert tuple(named["scale"]) == (4, 8)


def test_images_of_layers(layer_of: Any) -> None:
    found, size = image_of(layer_of(image(3, 7, 5), (5.0, 2.0, 3.0)))
    assert (found.shape, size) == ((1, 3, 7, 5), (5, 2, 3))
    found, size = image_of(layer_of(image(7, 5), (2.0, 3.0)))
    assert (found.shape, size) == ((1, 1, 7, 5), (2, 2, 3))
    colours = image(9, 7, 3)
    found, _ = image_of(layer_of(colours, rgb=True))
    np.testing.assert_array_equal(found[:, 0], np.moveaxis(colours, -1, 0))
    levels = [image(8, 8, 8), image(4, 4, 4)]
    found, _ = image_of(layer_of(levels))
    np.testing.assert_array_equal(found[0], levels[0])
    with pytest.raises(VolumeError, match=r"layer raw.*found 5"):
        image_of(layer_of(image(2, 2, 2, 3, 3)))


def test_units_of_napari() -> None:
    micrometres = of_napari(image(3, 7, 5), (5.0, 2.0, 3.0), units=("um", "um", "um"))
    assert image_of(micrometres)[1] == pytest.approx((5000, 2000, 3000))
    assert image_of(of_napari(image(3, 7, 5), (5.0, 2.0, 3.0)))[1] == (5, 2, 3)


def test_the_widget_goes_on_while_it_is_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = application(monkeypatch)
    run = run_folder(tmp_path / "run", ONE, data={"target": "mask"}, training=NUMBERS)
    came: list[Any] = []
    worker = predict_layer(plain(image(6, 9, 8)), run, min_size=1)
    # Another thread's call would show that layers are added where no thread but napari's own may.
    worker.returned.connect(lambda layers: came.append((threading.current_thread(), layers)))
    until = time.monotonic() + 60
    while not came and time.monotonic() < until:
        app.processEvents()
    ((thread, layers),) = came
    assert thread is threading.main_thread()
    assert [kind for *_, kind in layers] == ["image", "labels"]


def test_what_is_refused_is_told_in_naparis_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = application(monkeypatch)
    told: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, _: told.append((kind, error)))
    predict_layer(plain(image(6, 9, 8)), tmp_path)
    until = time.monotonic() + 60
    while not told and time.monotonic() < until:
        app.processEvents()
    ((kind, error),) = told
    assert issubclass(kind, RunError)
    assert "is not a run directory" in str(error)


def application(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Qt without a screen; skipped where napari or Qt is not installed."""
    pytest.importorskip("napari.types")
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    widgets = pytest.importorskip("qtpy.QtWidgets", exc_type=ImportError)
    return widgets.QApplication.instance() or widgets.QApplication([])


def test_layers_come_into_a_viewer(tmp_path: Path) -> None:
    components = pytest.importorskip("napari.components")
    layers = pytest.importorskip("napari.layers")
    viewer = components.ViewerModel()
    layer = viewer.add_image(image(6, 14, 12), name="raw", scale=(40, 4, 8))
    run = run_folder(tmp_path / "run", ONE, data={"target": "boundary"}, training=NUMBERS)
    for found in predicted(layer, run, min_size=2):
        viewer.add_layer(layers.Layer.create(*found))
    assert [it.name for it in viewer.layers] == ["raw", "raw prediction", "raw objects"]
    assert all((it.extent.world == layer.extent.world).all() for it in viewer.layers)


def test_napari_makes_the_widget(monkeypatch: pytest.MonkeyPatch) -> None:
    app = application(monkeypatch)
    widget = pytest.importorskip("magicgui").magicgui(predict_layer)
    assert app is not None
    assert [it.name for it in widget][:4] == ["layer", "run", "objects", "min_size"]
    assert widget.run.mode.name == "EXISTING_DIRECTORY"
