"""`znnpy score`: objects against labels, wherever both lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from called import status_of
from skimage.metrics import adapted_rand_error, variation_of_information

TRUTH = np.kron(np.arange(1, 9).reshape(2, 2, 2), np.ones((3, 4, 5), int))
OBJECTS = TRUTH.copy()
OBJECTS[:3, :4] = 1  # two are merged
OBJECTS[3:, 6:, 7:] = 9  # one is split


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("labels.h5", TRUTH, offset=(0, 0, 0))
    write("objects.h5", OBJECTS, offset=(0, 0, 0))


def write(name: str, array: np.ndarray, **attributes: Any) -> None:
    with h5py.File(name, "w") as file:
        file["labels"] = array.astype(np.uint64)
        file["labels"].attrs.update({"resolution": (40.0, 4.0, 4.0), **attributes})


def scored(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert status_of("score", *words) == code
    out, errors = capsys.readouterr()
    return json.loads(out) if "--json" in words and not code else out + errors


def test_scores_are_those_of_scikit_image(capsys: pytest.CaptureFixture[str]) -> None:
    found = scored(capsys, "objects.h5", "--labels", "labels.h5", "--json")["all"]
    error = adapted_rand_error(TRUTH, OBJECTS)[0]
    split, merge = variation_of_information(TRUTH, OBJECTS)
    assert found["adapted_rand_error"] == pytest.approx(error)
    assert (found["voi_split"], found["voi_merge"]) == pytest.approx((split, merge))
    assert found["cremi_score"] == pytest.approx(np.sqrt(error * (split + merge)))
    assert 0 < found["object_precision"] < 1
    assert "adapted Rand error" in scored(capsys, "objects.h5", "--labels", "labels.h5")


def test_each_section_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("objects.h5", "--labels", "labels.h5", "--sections", "--json")
    rows = scored(capsys, *words)
    assert list(rows) == ["all", *(f"z = {z}" for z in range(6))]
    for z in range(6):
        error = adapted_rand_error(TRUTH[z], OBJECTS[z])[0]
        assert rows[f"z = {z}"]["adapted_rand_error"] == pytest.approx(error)


def test_a_part_is_scored_where_it_lies(capsys: pytest.CaptureFixture[str]) -> None:
    write("part.h5", OBJECTS[2:, 1:], offset=(80, 4, 0))
    found = scored(capsys, "part.h5", "--labels", "labels.h5", "--json")["all"]
    error = adapted_rand_error(TRUTH[2:, 1:], OBJECTS[2:, 1:])[0]
    assert found["adapted_rand_error"] == pytest.approx(error)


def test_a_part_of_labels_that_do_not_say_where_they_lie(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As what `znnpy predict --roi` made."""
    write("part.h5", OBJECTS[2:, 1:], offset=(80, 4, 0))
    write("plain.h5", TRUTH)
    found = scored(capsys, "part.h5", "--labels", "plain.h5", "--json")["all"]
    error = adapted_rand_error(TRUTH[2:, 1:], OBJECTS[2:, 1:])[0]
    assert found["adapted_rand_error"] == pytest.approx(error)


def test_labels_that_cover_a_part_and_do_not_say_which(capsys: pytest.CaptureFixture[str]) -> None:
    write("plain.h5", TRUTH[:, 1:])
    said = scored(capsys, "objects.h5", "--labels", "plain.h5")
    assert "plain.h5:labels has" in said
    assert "does not say where they lie" in said
    write("placed.h5", TRUTH[:, 1:], offset=(0, 4, 0))
    assert "where they lie" not in scored(capsys, "objects.h5", "--labels", "placed.h5")
    write("part.h5", OBJECTS[:, 1:], offset=(0, 0, 0))
    write("whole.h5", TRUTH)
    assert "where they lie" not in scored(capsys, "part.h5", "--labels", "whole.h5")


def test_what_is_masked_or_unlabelled_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    write("mask.h5", OBJECTS == TRUTH, offset=(0, 0, 0))
    words = ("objects.h5", "--labels", "labels.h5", "--mask", "mask.h5", "--json")
    assert scored(capsys, *words)["all"]["voi_split"] == 0
    write("mask.h5", OBJECTS == 0, offset=(0, 0, 0))
    assert "labels.h5:labels has no label but 0" in scored(capsys, *words, code=1)


def test_classes(capsys: pytest.CaptureFixture[str]) -> None:
    write("classes.h5", TRUTH % 3, offset=(0, 0, 0))
    write("found.h5", OBJECTS % 3, offset=(0, 0, 0))
    rows = scored(capsys, "found.h5", "--labels", "classes.h5", "--classes", "--json")
    assert list(rows) == ["class 0", "class 1", "class 2"]
    for number in range(3):
        found, wanted = number == OBJECTS % 3, number == TRUTH % 3
        expected = 2 * (found & wanted).sum() / (found.sum() + wanted.sum())
        assert rows[f"class {number}"]["dice"] == pytest.approx(expected)


def test_refused(capsys: pytest.CaptureFixture[str]) -> None:
    write("far.h5", OBJECTS[1:], offset=(4000, 0, 0))
    assert "no voxel in common" in scored(capsys, "far.h5", "--labels", "labels.h5", code=1)
    write("many.h5", np.arange(TRUTH.size).reshape(TRUTH.shape), offset=(0, 0, 0))
    words = ("many.h5", "--labels", "labels.h5", "--classes")
    assert "are objects, not classes" in scored(capsys, *words, code=1)
    assert "leave out" in scored(capsys, *words, "--sections", code=2)
    with h5py.File("values.h5", "w") as file:
        file["labels"] = OBJECTS.astype(np.float32) / 2
        file["whole"] = OBJECTS.astype(np.float64)
    assert "of float32" in scored(capsys, "values.h5:labels", "--labels", "labels.h5", code=1)
    words = ("--labels", "labels.h5", "--json")
    whole, wanted = (scored(capsys, name, *words) for name in ("values.h5:whole", "objects.h5"))
    assert whole["all"].keys() == wanted["all"].keys()


def test_each_object_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    rows = scored(capsys, "objects.h5", "--labels", "labels.h5", "--each", "--json")
    one = rows["object 1"]
    assert (one["voxels"], one["splits"], one["merges"]) == (60, 0, 1)
    assert one["best_iou"] == pytest.approx(1 / 2)
    assert rows["object 8"]["splits"] == 1
    assert rows["all"]["splits_per_object"] == pytest.approx(1 / 8)
    assert rows["all"]["merges_per_object"] == pytest.approx(2 / 8)
    assert "largest first" in scored(capsys, "objects.h5", "--labels", "labels.h5", "--each")
    said = scored(capsys, "objects.h5", "--labels", "labels.h5", "--each", "--classes", code=2)
    assert "leave out --classes" in said


def test_labels_that_tell_little(capsys: pytest.CaptureFixture[str]) -> None:
    write("zero.h5", 0 * TRUTH, offset=(0, 0, 0))
    for more in ((), ("--sections",), ("--each",)):
        said = scored(capsys, "objects.h5", "--labels", "zero.h5", *more, code=1)
        assert said.count("\n") == 1
        assert "zero.h5:labels has no label but 0" in said
    write("one.h5", TRUTH > 0, offset=(0, 0, 0))
    assert "one.h5 has no more than one object" in scored(
        capsys, "objects.h5", "--labels", "one.h5"
    )
    assert "note" not in scored(capsys, "objects.h5", "--labels", "labels.h5")


def test_numbers_beyond_those_of_floats(capsys: pytest.CaptureFixture[str]) -> None:
    """Which differ in the last bits alone."""
    for name, array in (("t.h5", TRUTH), ("o.h5", OBJECTS)):
        far = np.where(array > 0, np.uint64(2**64 - 1) - array.astype(np.uint64), np.uint64(0))
        write(name, far, offset=(0, 0, 0))
    small = scored(capsys, "objects.h5", "--labels", "labels.h5", "--json")
    assert scored(capsys, "o.h5", "--labels", "t.h5", "--json") == small


@pytest.mark.parametrize("which", ["objects.h5", "labels.h5"])
def test_negative_numbers_are_no_objects(capsys: pytest.CaptureFixture[str], which: str) -> None:
    with h5py.File(which, "w") as file:
        file["labels"] = np.where(TRUTH.max() == TRUTH, -1, TRUTH.astype(np.int64))
        file["labels"].attrs.update({"resolution": (40.0, 4.0, 4.0), "offset": (0, 0, 0)})
    said = scored(capsys, "objects.h5", "--labels", "labels.h5", code=1)
    assert f"{which}:labels holds negative numbers, down to -1" in said
