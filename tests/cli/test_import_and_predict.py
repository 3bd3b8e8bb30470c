"""From a model folder of nnU-Net and scans to labels in the scans' voxels, by the commands alone."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pytest
from called import status_of
from nnunet_model import folder_of
from nnunet_plans import Recipe

RECIPE = Recipe(
    patch=(8, 16, 16), spacing=(1.0, 1.0, 1.5), widths=(4, 6), folds=(0, 1), mirrored=(2,),
    schemes=("ZScoreNormalization", "CTNormalization"), masks=(True, False),
)  # fmt: skip
AFFINE = np.array([[-1.2, 0, 0, 10], [0, 0, 1, 20], [0, 0.7, 0, 30], [0, 0, 0, 1]])
SHAPE = (17, 21, 14)  # x, y, z


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for name in "ab":
        for channel in (0, 1):
            array = rng.integers(-90, 90, SHAPE).astype("i2")
            array[:3] = 0
            path = tmp_path / "images" / f"{name}_000{channel}.nii.gz"
            nibabel.Nifti1Image(array, AFFINE).to_filename(path)
    monkeypatch.chdir(tmp_path)
    folder_of(RECIPE, tmp_path / "model")
    assert status_of("import", "model", "--output", "run") == 0
    return tmp_path


def channels(name: str = "a") -> list[str]:
    return [part for n in (0, 1) for part in ("--input", f"images/{name}_000{n}.nii.gz")]


def test_labels_lie_in_their_scan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("predict", "run", "--threads", 1)
    assert status_of(*line, *channels(), "--output", "a.nii.gz") == 0
    found = nibabel.load("a.nii.gz")
    labels = np.asarray(found.dataobj)
    assert labels.shape == SHAPE
    assert labels.dtype == np.uint8
    np.testing.assert_allclose(found.affine, AFFINE, atol=1e-5)
    assert not labels[:3].any()  # cut off
    assert len(np.unique(labels)) > 1
    # What the labels are made of, and another format.
    assert status_of(*line, *channels(), "--output", "a.h5", "--logits") == 0
    with h5py.File("a.h5") as file:
        logits = file["logits"][:]
        assert file["logits"].attrs["iteration"] == 0
    assert np.array_equal(logits.argmax(axis=0), labels.transpose(2, 1, 0))
    assert status_of(*line, *channels(), "--output", "b.h5", "--logits", "--augment", "none") == 0
    with h5py.File("b.h5") as file:
        assert np.abs(file["logits"][:] - logits).max() > 0.01
    # The model itself, in one go.
    assert status_of("predict", "model", *channels(), "--output", "c.nii.gz", *line[2:]) == 0
    assert np.array_equal(nibabel.load("c.nii.gz").dataobj, labels)
    capsys.readouterr()
    assert status_of(*line, *channels(), "--output", "a.nii.gz") == 1
    assert "a.nii.gz exists already" in capsys.readouterr().err


def logits(*line: object) -> np.ndarray:
    assert status_of("predict", *line, *channels(), "--threads", 1, "--logits", "--overwrite") == 0
    with h5py.File("logits.h5") as file:
        found: np.ndarray = file["logits"][:]
    return found


def test_logits_are_means_over_folds(folder: Path) -> None:
    out = ("--output", "logits.h5")
    both = logits("run", *out)
    each = [logits(f"model/fold_{fold}/checkpoint_final.pth", *out) for fold in (0, 1)]
    assert np.abs(each[0] - each[1]).max() > 0.1
    np.testing.assert_allclose(both, np.mean(each, axis=0), atol=1e-5)


def test_a_folder_of_cases_goes_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("predict", "run", "--input", "images", "--output", "labels", "--threads", 1)
    assert status_of(*line) == 0
    assert sorted(path.name for path in Path("labels").iterdir()) == ["a.nii.gz", "b.nii.gz"]
    Path("labels/b.nii.gz").unlink()
    first = Path("labels/a.nii.gz").stat().st_mtime_ns
    capsys.readouterr()
    assert status_of(*line) == 0
    said = capsys.readouterr().out
    assert "1 of 2 cases are written already" in said
    assert "labels/b.nii.gz" in said
    assert Path("labels/a.nii.gz").stat().st_mtime_ns == first
    assert status_of(*line[:-2], "--threads", 1) == 0
    Path("images/b_0000.nii.gz").rename("images/b_0003.nii.gz")
    assert status_of(*line, "--overwrite") == 1
    assert "b has channels 0001, 0003" in capsys.readouterr().err


def test_a_damaged_scan_stops_no_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = Path("images/a_0001.nii.gz")
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2])
    line = ("predict", "run", "--input", "images", "--output", "out", "--threads", 1)
    assert status_of(*line) == 1
    said = capsys.readouterr().err
    assert "images/a_0001.nii.gz: its gzip data are cut" in said
    assert "1 of 2 cases could not be predicted: images/a_0000.nii.gz; the same" in said
    assert [it.name for it in Path("out").iterdir()] == ["b.nii.gz"]
    damaged.write_bytes(whole)
    assert status_of(*line) == 0
    assert "1 of 2 cases are written already" in capsys.readouterr().out
    assert Path("out/a.nii.gz").exists()


def test_a_scan_that_no_memory_holds_stops_no_other(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its voxels are so large that at those of the net it has 10^14."""
    for channel in (0, 1):
        array = np.ones((50, 50, 50), np.int16)
        image = nibabel.Nifti1Image(array, np.diag([1e3, 1e3, 1e3, 1]))
        image.to_filename(f"images/a_000{channel}.nii.gz")
    line = ("predict", "run", "--input", "images", "--output", "out", "--threads", 1)
    assert status_of(*line) == 1
    said = capsys.readouterr().err
    assert "images/a_0000.nii.gz: Unable to allocate" in said
    assert "1 of 2 cases could not be predicted: images/a_0000.nii.gz" in said
    assert [it.name for it in Path("out").iterdir()] == ["b.nii.gz"]


def test_a_full_disk_ends_all(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refused)
    line = ("predict", "run", "--input", "images", "--output", "out", "--threads", 1)
    assert status_of(*line) == 1
    said = capsys.readouterr().err
    assert said.count("the disk is full") == 1
    assert "could not be predicted" not in said
    assert not any(Path("out").iterdir())


def test_what_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("predict", "run", "--output", "a.nii.gz", "--threads", 1)
    for more, status, words in (
        ((*channels(), "--roi", "0:1,0:1,0:1"), 2, "--roi: not for a run"),
        ((*channels(), "--dry-run", "--dtype", "uint8"), 2, "--dtype, --dry-run: not for a run"),
        (channels()[:2], 1, "has 1 channel(s), but data.prepare.normalize names 2"),
        (("--input", "images/a_0000.nii.gz", "--input", "model"), 1, "model"),
        (
            (*channels(), "--set", "inference.regions=[1]"),
            1,
            "must name 3 labels, one for each output channel; found 1",
        ),
        ((*channels(), "--max-memory", "1MiB"), 1, "--max-memory is 1.0 MiB"),
        (("--input", "images"), 1, "name a folder to write, not the file a.nii.gz"),
    ):
        assert status_of(*line, *more) == status
        assert words in " ".join(capsys.readouterr().err.replace("│", "").split())
    assert not Path("a.nii.gz").exists()
    assert status_of("import", "images", "--output", "other") == 1
    assert "images is no model that can be taken over: name" in capsys.readouterr().err
    for near in ("model/fold_0", "."):
        assert status_of("import", near, "--output", "other") == 1
        assert "did you mean model?" in capsys.readouterr().err
    assert status_of("import", "model", "--output", "run") == 1
    assert "run holds a run already" in capsys.readouterr().err


def test_a_run_learns_on_and_is_scored(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On scans that are prepared as those that it is predicted on."""
    one = Recipe(patch=(8, 8, 8), spacing=(1.0, 1.0, 1.5), widths=(4, 6))
    folder_of(one, folder / "one")
    assert status_of("import", "one", "--output", "first") == 0
    image = "images/a_0000.nii.gz"
    labels = (np.asarray(nibabel.load(image).dataobj) > 0).astype(np.uint8)
    nibabel.Nifti1Image(labels, AFFINE).to_filename("labels.nii.gz")
    text = Path("first/config.yaml").read_text()
    for old, new in (
        ("train: []", f"train: [{{image: {image}, labels: labels.nii.gz}}]"),
        ("iterations: 250000", "iterations: 2\n  start_from: first"),
        (f"directory: {folder / 'first'}", "directory: second"),
    ):
        assert old in text
        text = text.replace(old, new)
    Path("config.yaml").write_text(text)
    assert status_of("train", "config.yaml", "--threads", 1, "--set", "training.conv=direct") == 0
    assert "begins with 24 of 24 parameters" in capsys.readouterr().err
    given = ("--volume", image, "--labels", "labels.nii.gz", "--threads", 1)
    for run in ("first", "second"):
        assert status_of("evaluate", run, *given) == 0
        assert "accuracy" in capsys.readouterr().out
        line = ("predict", run, "--input", image, "--output", f"{run}.nii.gz", "--threads", 1)
        assert status_of(*line) == 0
    first, second = (nibabel.load(f"{run}.nii.gz").dataobj for run in ("first", "second"))
    assert first.shape == second.shape == SHAPE
