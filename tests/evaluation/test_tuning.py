"""Searching method, threshold and least size on labels: the best of what was tried, and what evaluation makes of it."""

from __future__ import annotations

import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
from called import status_of
from scipy import ndimage
from scipy.spatial import cKDTree

from znnpy.data.volume import ArrayVolume
from znnpy.errors import VolumeError
from znnpy.evaluation.objects import read_pair, score_objects
from znnpy.evaluation.scores import Labelled
from znnpy.evaluation.tuning import LEVELS, best_threshold, tuned, tuned_threshold
from znnpy.segment.job import Request, segment

Pair = tuple[ArrayVolume, ArrayVolume]


@pytest.fixture(scope="module")
def pair() -> Pair:
    """A weak boundary map of cells, and their labels, which lie 2 voxels behind its corner."""
    rng = np.random.default_rng(0)
    shape = (20, 34, 36)
    voxels = np.stack(np.indices(shape), axis=-1).reshape(-1, 3)
    far, number = cKDTree(rng.random((15, 3)) * shape).query(voxels, k=2)
    wall = 0.45 * np.exp(-((far[:, 1] - far[:, 0]) ** 2) / 4).reshape(shape)
    noise = ndimage.gaussian_filter(rng.normal(size=shape), 1)
    values = np.clip(wall + 0.2 * noise, 0, 1).astype(np.float32)
    labels = (number[:, 0].reshape(shape) + 1).astype(np.uint32)
    placed = ArrayVolume(labels[2:, 2:, 2:], "labels", (1, 1, 1), (2, 2, 2))
    return ArrayVolume(values, "prediction", (1, 1, 1), (0, 0, 0)), placed


def test_the_search_finds_the_least_of_a_valley() -> None:
    assert best_threshold(lambda level: (level - 0.31) ** 2) == 0.3
    assert best_threshold(lambda level: (level - 0.97) ** 2) == pytest.approx(0.95)
    assert best_threshold(lambda level: 1.0) == 0.5
    tried: list[float] = []
    best_threshold(lambda level: tried.append(level) or 0.0)  # type: ignore[func-returns-value]
    assert len(tried) == len(set(tried)) == len(LEVELS) + 4


def test_the_best_of_each_method(pair: Pair) -> None:
    prediction, truth = pair
    notes: list[str] = []
    found = tuned(prediction, truth, None, Request(), notes.append)
    assert not notes
    assert {"agglomerate", "median", "components", "watershed"} <= {
        str(it.request.method) for it in found
    }
    assert [it.cremi for it in found] == sorted(it.cremi for it in found)
    best = found[0]
    labels = segment(prediction, best.request).labels
    same = score_objects(read_pair(ArrayVolume(labels, "o", (1, 1, 1), (0, 0, 0)), truth))
    assert same == best.scores
    usual = segment(prediction, Request())
    with_usual = score_objects(
        read_pair(ArrayVolume(usual.labels, "o", (1, 1, 1), (0, 0, 0)), truth)
    )
    assert best.cremi < float(with_usual["cremi_score"] or 0)


def test_what_is_given_stays(pair: Pair) -> None:
    wanted = Request("watershed", threshold=0.3, min_size=40)
    (only,) = tuned(*pair, None, wanted, print)
    assert only.request == wanted
    with pytest.raises(VolumeError, match="no method could be tried"):
        tuned(*pair, None, Request("mutex"), print)


def test_labels_that_tell_nothing_are_refused_once(pair: Pair) -> None:
    prediction, truth = pair
    said: list[str] = []
    one = np.ones((18, 32, 34), np.uint32)
    for values, expected in (
        (one, "fewer than two objects"),
        (one * 0, "fewer than two objects"),
        (one / np.float32(2), "expected numbers of objects"),
    ):
        labels = ArrayVolume(values, "labels", (1, 1, 1), (2, 2, 2))
        with pytest.raises(VolumeError, match=f"labels .*{expected}"):
            tuned(prediction, labels, None, Request(), said.append)
    none = ArrayVolume(np.zeros((18, 32, 34), np.uint8), "mask", (1, 1, 1), (2, 2, 2))
    with pytest.raises(VolumeError, match="fewer than two objects"):
        tuned(prediction, truth, none, Request(), said.append)
    assert not said


def test_a_mask_decides_what_counts(pair: Pair) -> None:
    prediction, truth = pair
    none = np.zeros((18, 32, 34), np.uint8)
    none[:, :, :9] = 1
    mask = ArrayVolume(none, "mask", (1, 1, 1), (2, 2, 2))
    (masked,) = tuned(prediction, truth, mask, Request("watershed", threshold=0.3), print)
    (whole,) = tuned(prediction, truth, None, Request("watershed", threshold=0.3), print)
    assert masked.scores != whole.scores


def test_the_threshold_of_an_evaluation() -> None:
    truth = np.repeat([1, 2], 8).reshape(1, 1, 16)
    zeros = np.zeros((1, 1, 1, 16), np.float32)
    known = Labelled(zeros, zeros, truth, zeros[0])

    def objects(ranking: np.ndarray, level: float) -> np.ndarray:
        return truth if 0.6 < level < 0.7 else np.ones_like(truth)

    assert tuned_threshold(zeros, known, objects) == 0.65
    assert tuned_threshold(zeros, known, None) is None
    nothing = Labelled(zeros, zeros, np.zeros_like(truth), zeros[0])
    assert tuned_threshold(zeros, nothing, objects) is None


def test_the_command(
    tmp_path: Path, pair: Pair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, volume in (("p", pair[0]), ("l", pair[1])):
        with h5py.File(f"{name}.h5", "w") as file:
            file["d"] = volume.array[0]
            file["d"].attrs["offset"] = volume.offset
    words = ["segment", "p.h5:d", "--tune", "l.h5:d", "--method", "agglomerate"]
    assert status_of(*words) == 0
    said = capsys.readouterr()
    assert "agglomerate" in said.out
    assert "segment p.h5:d --output objects.h5 --method agglomerate --threshold" in said.err
    assert "of the voxels of" not in said.err, "what is only tried is remarked on"
    assert not Path("o.h5").exists()
    assert status_of(*words, "--threshold", "0.3", "--output", "o.h5") == 0
    with h5py.File("o.h5") as file:
        dataset = file["volumes/labels/neuron_ids"]
        assert dataset.attrs["threshold"] == 0.3
    capsys.readouterr()
    assert status_of("segment", "p.h5:d") == 2
    assert "--output is needed" in capsys.readouterr().err
    assert status_of("segment", "p.h5:d", "--output", "x.h5", "--mask", "l.h5:d") == 2
    assert "--mask is for --tune" in capsys.readouterr().err
    assert status_of("segment", "p.h5", "--tune", "l.h5", "--threads", "2") == 2
    assert "--threads are for --output" in capsys.readouterr().err


def test_labels_of_another_size_that_do_not_say_where_they_lie(pair: Pair) -> None:
    said: list[str] = []
    smaller = ArrayVolume(pair[1].array[0][:, 4:], "labels")
    tuned(pair[0], smaller, None, Request("components", threshold=0.3), said.append)
    assert said[0].startswith("labels has (18, 28, 34) voxels")


def test_a_prediction_without_objects_is_said(pair: Pair) -> None:
    blank = ArrayVolume(np.ones(pair[0].extent, np.float32), "blank", (1, 1, 1), (0, 0, 0))
    said: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what is only tried is not remarked on
        tuned(blank, pair[1], None, Request("agglomerate", threshold=0.5), said.append)
    assert len(said) == 1
    assert said[0].startswith("the best that was found in blank has no objects")
    said.clear()
    tuned(pair[0], pair[1], None, Request("agglomerate"), said.append)
    assert not said
