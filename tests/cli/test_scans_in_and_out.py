"""From NIfTI images to labels that lie in them, by the commands alone."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK
from called import status_of

AFFINE = np.array([[-0.5, 0, 0, 10], [0, 0, 0.6, 20], [0, -0.7, 0, 30], [0, 0, 0, 1]])
CONFIG = """
network: {layers: [{conv: {channels: 3, size: 3, function: relu}}, {conv: {channels: 3, size: 1}}]}
data: {train: [{image: images/*_0000.nii.gz, labels: labels/*.nii.gz}], target: labels}
training: {output_shape: 6, loss: softmax, iterations: 2, conv: direct}
run: {directory: run, threads: 1}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        labels = rng.integers(0, 3, (10, 12, 14)).astype(np.uint8)
        for place, array in (
            (
                f"images/{name}_0000.nii.gz",
                (labels * 80 + rng.integers(0, 9, labels.shape)).astype("i2"),
            ),
            (f"labels/{name}.nii.gz", labels),
        ):
            (tmp_path / place).parent.mkdir(exist_ok=True)
            nibabel.Nifti1Image(array, AFFINE).to_filename(tmp_path / place)
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_images_to_labels(folder: Path) -> None:
    image = "images/b_0000.nii.gz"
    assert status_of("train", "config.yaml") == 0
    assert "a_0000.nii.gz" in Path("run/config.yaml").read_text()
    predict = ("predict", "run", "--input", image, "--output")
    for name in ("p.h5", "p.nii.gz", "p.nrrd", "p.mha", "p.tif"):
        assert status_of(*predict, name) == 0
        line = ("segment", name, "--method", "classes", "--output", f"of-{name}.nii.gz")
        assert status_of(*line) == 0
    assert status_of(*predict, "at-once.nii.gz", "--labels") == 0
    wanted = nibabel.load("at-once.nii.gz")
    # Without its border of a voxel.
    assert wanted.shape == (8, 10, 12)
    np.testing.assert_allclose(wanted.affine @ [0, 0, 0, 1], AFFINE @ [1, 1, 1, 1], atol=1e-5)
    for path in folder.glob("of-*.nii.gz"):
        found = nibabel.load(path)
        assert np.array_equal(found.dataobj, wanted.dataobj)
        np.testing.assert_allclose(found.affine, wanted.affine, atol=1e-5)
    read = SimpleITK.ReadImage("at-once.nii.gz")
    np.testing.assert_allclose(
        np.array(read.GetOrigin()) * [-1, -1, 1], wanted.affine[:3, 3], atol=1e-5
    )


def test_what_cannot_be_written_is_told_before(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("train", "config.yaml") == 0
    line = ("predict", "run", "--input", "images/a_0000.nii.gz", "--output")
    for name, words in (
        ("p.mrc", "an MRC file holds one channel, not 3"),
        (
            "p.npy",
            "MRC, OME-TIFF and PNG are written, name a file p.h5",
        ),
        ("p.png", "a PNG file holds one channel of one slice"),
    ):
        assert status_of(*line, name) == 1
        assert words in " ".join(capsys.readouterr().err.split())
    assert not list(folder.glob("p.*"))
