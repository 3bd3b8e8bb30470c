"""Objects and scores from Python: those of the commands, and of scikit-image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy import ndimage
from skimage.metrics import adapted_rand_error, variation_of_information
from small_run import znnpy

import znnpy as package
from znnpy.data.volume import ArrayVolume
from znnpy.errors import VolumeError, ZnnpyError


@pytest.fixture(scope="module")
def prediction() -> Any:
    """Walls with holes."""
    choose = np.random.default_rng(0)
    walls = choose.random((12, 30, 34)) * 0.3
    walls[:, ::8] += 0.65
    walls[:, :, ::9] = 0.5 + 0.4 * choose.random((12, 30, 4))
    return walls.astype(np.float32)


@pytest.mark.parametrize("method", [None, "components", "watershed"])
def test_objects_are_those_that_the_command_writes(
    prediction: Any, tmp_path: Path, method: str | None
) -> None:
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["prediction"] = prediction
    words = ["--method", method] if method else []
    line = [tmp_path / "in.h5", "--output", tmp_path / "out.h5", "--threshold", 0.4, *words]
    znnpy("segment", *line)
    found = package.segment(prediction, method=method, threshold=0.4)
    with h5py.File(tmp_path / "out.h5") as file:
        assert np.array_equal(found.labels, file["volumes/labels/neuron_ids"][:])
    assert len(found) == found.labels.max() == np.asarray(found).max()
    assert np.array_equal(found.sizes, np.bincount(found.labels.ravel())[1:])
    again = package.segment(f"{tmp_path}/in.h5:prediction", method=method, threshold=0.4)
    assert np.array_equal(again.labels, found.labels)


def test_components_are_scipys(prediction: Any) -> None:
    found = package.segment(prediction, method="components", threshold=0.4)
    _, count = ndimage.label(prediction < 0.4)
    assert len(found) == count > 1
    assert f"{count} objects of (12, 30, 34) voxels" in repr(found)
    assert "data:image/png;base64," in found._repr_html_()


def test_scores_are_scikit_images(prediction: Any) -> None:
    truth = package.segment(prediction, method="components", threshold=0.5).labels
    found = package.segment(prediction, method="watershed").labels + np.uint64(1)
    scores = package.score(found, truth)
    error, _, _ = adapted_rand_error(truth, found, ignore_labels=[0])
    assert scores["adapted_rand_error"] == pytest.approx(error, abs=1e-9)
    splits = variation_of_information(truth, found, ignore_labels=[0])
    assert scores["voi"] == pytest.approx(splits.sum())
    assert "adapted Rand error" in scores._repr_html_()
    sections = package.score(found, truth, by="section")
    assert list(sections) == list(range(12))
    assert "<th>11</th>" in sections._repr_html_()


def test_classes_have_scores_each() -> None:
    found, truth = np.zeros((2, 4, 4), np.uint8), np.zeros((2, 4, 4), np.uint8)
    found[:, :2], truth[:, 1:3] = 1, 1
    scores = package.score(found, truth, by="class")
    assert scores[1]["dice"] == pytest.approx(0.5)
    assert scores[1]["iou"] == pytest.approx(1 / 3)


def test_offsets_of_affinities_are_given_for_arrays(prediction: Any) -> None:
    affinities = np.stack([1 - prediction] * 3)
    volume = ArrayVolume(affinities)
    found = package.segment(volume, offsets=[(-1, 0, 0), (0, -1, 0), (0, 0, -1)], threshold=0.5)
    assert len(found) > 1
    assert volume.neighbours is None  # the caller's, as it was


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: package.segment(p, threshold=7), "threshold: must be a probability"),
        (lambda p: package.segment(p, threshold="0.5"), "threshold: .* found '0.5'"),
        (lambda p: package.segment(p, threshold=True), "threshold: .* found true"),
        (lambda p: package.segment(p, min_size=2.5), "min_size: must be a whole number"),
        (lambda p: package.segment(p, channels=0), "channels: must be a list"),
        (lambda p: package.segment(p, method=3), "method: must be the name"),
        (
            lambda p: package.segment(p, kind="x"),
            "kind: must be one of boundary, foreground, affinity",
        ),
        (lambda p: package.segment(p * 300), "expected probabilities"),
        (lambda p: package.segment(p, method="watershedd"), "did you mean 'watershed'"),
        (lambda p: package.segment(p, offsets=[(1, 0)]), "offsets: must be 1 of whole numbers"),
        (
            lambda p: package.segment(p, offsets=[(0, 0, 1.7)]),
            "offsets: must be 1 of whole numbers",
        ),
        (
            lambda p: package.segment(p, offsets=[("a", 0, 0)]),
            "offsets: must be 1 of whole numbers",
        ),
        (lambda p: package.segment(p, offsets=3), "offsets: must be 1 of whole numbers"),
        (lambda p: package.segment(p, offsets=[1]), "offsets: must be 1 of whole numbers"),
        (lambda p: package.segment(p, resolution=("4", "4", "40")), "resolution: must be three"),
        (lambda p: package.segment(np.stack([p] * 2)), "has 2 channels"),
        (lambda p: package.segment(p, resolution=4.0), "resolution: must be three"),
        (lambda p: package.segment(p, resolution=(0, 1, 1)), "resolution: must be three positive"),
        (lambda p: package.segment(p, resolution=(np.nan, 1, 1)), "resolution: must be three"),
        (lambda p: package.segment(p, min_size=-1), "min_size: must be a whole number, at least 0"),
        (lambda p: package.segment(np.ma.masked_array(p, p > 0.5)), "hidden by a NumPy mask"),
        (lambda p: package.segment("none.h5"), "none.h5 does not exist"),
        (lambda p: package.score(p, p > 0.5), "objects holds values of float"),
        (lambda p: package.score(p > 0.5, p[1:] > 0.5), "they must be equal"),
        (lambda p: package.score(p > 0.5, p > 0.5, by="z"), "by: must be"),
    ],
    ids=lambda it: it if isinstance(it, str) else "call",
)
def test_refusals(prediction: Any, call: Any, words: str) -> None:
    with pytest.raises((VolumeError, ZnnpyError), match=words):
        call(prediction)
