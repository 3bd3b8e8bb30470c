"""A flat model of nnU-Net for pictures: PNG files in, labels as nnU-Net's predictor has them."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter

torch = pytest.importorskip("torch")
inference = pytest.importorskip("nnunetv2.inference.predict_from_raw_data")

from called import status_of  # noqa: E402
from nnunet_folder import written  # noqa: E402
from nnunet_plans import Recipe  # noqa: E402


def test_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe(
        patch=(24, 32), spacing=(1.0, 1.0), reader="NaturalImage2DIO", mirrored=(0, 1),
        schemes=("RGBTo01Normalization",) * 3, masks=(False,) * 3,
    )  # fmt: skip
    model = written(recipe, tmp_path)
    monkeypatch.setattr(torch, "half", torch.float32)  # of sums, after the types of what is saved
    noise = gaussian_filter(np.random.default_rng(0).standard_normal((3, 41, 57)), (0, 2, 2))
    colours = (noise * 400 + 128).clip(0, 255).astype(np.uint8)
    Image.fromarray(colours.transpose(1, 2, 0)).save(tmp_path / "a.png")
    predictor = inference.nnUNetPredictor(device=torch.device("cpu"), allow_tqdm=False)
    predictor.initialize_from_trained_model_folder(str(model), None)
    case = {"spacing": [999.0, 1.0, 1.0]}
    wanted = predictor.predict_single_npy_array(colours[:, None].astype(np.float32), case)
    line = ("predict", model, "--input", tmp_path / "a.png", "--threads", 1, "--output")
    assert status_of(*line, tmp_path / "a.nii.gz") == 0
    found = np.asarray(nibabel.load(tmp_path / "a.nii.gz").dataobj).transpose(2, 1, 0)
    assert found.shape == wanted.shape
    assert len(np.unique(wanted)) > 1
    assert (found != wanted).mean() < 1e-3
