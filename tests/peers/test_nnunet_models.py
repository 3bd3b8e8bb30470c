"""Models of nnU-Net, saved by its trainer, beside nnU-Net's predictor: networks, logits, labels and their places."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.spatial.transform import Rotation

torch = pytest.importorskip("torch")
inference = pytest.importorskip("nnunetv2.inference.predict_from_raw_data")

from called import status_of  # noqa: E402
from nnunet_folder import written  # noqa: E402
from nnunet_plans import Recipe  # noqa: E402
from nnunetv2.inference.data_iterators import PreprocessAdapterFromNpy  # noqa: E402

from znnpy.data.preparing.scan import prepare  # noqa: E402
from znnpy.data.volume import ArrayVolume  # noqa: E402
from znnpy.infer.scan_job import scan_model  # noqa: E402
from znnpy.infer.scans import labelled, logits_of, windows_of  # noqa: E402
from znnpy.infer.window_sums import mean_planes, padded  # noqa: E402
from znnpy.train.members import members_of  # noqa: E402
from znnpy.train.progress import Quiet  # noqa: E402
from znnpy.train.start import SavedRun, read_run  # noqa: E402

CT = "CTNormalization"
RECIPES = {
    "plain, two folds": Recipe(folds=(0, 1)),
    "residual, two channels": Recipe(
        residual=True, schemes=(CT, "ZScoreNormalization"), masks=(False, True)
    ),
    "without an architecture": Recipe(old=True, widths=(4, 8, 16), mirrored=(0, 2)),
    "flat": Recipe(patch=(24, 32), spacing=(1.0, 1.0), mirrored=(0, 1)),
    "flat, two levels": Recipe(patch=(24, 32), spacing=(1.0, 1.0), widths=(6, 8), mirrored=(1,)),
    "regions": Recipe(labels={"background": 0, "all": [1, 2], "core": [2]}, regions=(1, 2)),
    "turned, thick": Recipe(transpose=(2, 0, 1), spacing=(4.0, 1.0, 1.1), schemes=(CT,)),
    "other schemes": Recipe(
        schemes=("NoNormalization", "RescaleTo01Normalization"), masks=(False, False), spacing=(1.3, 0.9, 0.8)
    ),
}  # fmt: skip
SPACING = [1.3, 0.9, 0.8]


class Both:
    """A model folder, nnU-Net's predictor of it, and the run that is imported from it."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.recipe, self.model = recipe, written(recipe, folder)
        self.predictor = inference.nnUNetPredictor(device=torch.device("cpu"), allow_tqdm=False)
        self.predictor.initialize_from_trained_model_folder(str(self.model), None)
        self.run = folder / "run"
        assert status_of("import", self.model, "--output", self.run) == 0

    def saved(self) -> SavedRun:
        return read_run(self.run, Quiet(), ["run.threads=1"])

    def scan(self, extent: tuple[int, int, int] = (20, 41, 37)) -> np.ndarray:
        rng, channels = np.random.default_rng(0), len(self.recipe.schemes)
        raw = gaussian_filter(rng.standard_normal((channels, *extent)), (0, 1, 2, 2)) * 900
        found = raw.astype(np.int16)
        found[:, :2] = found[:, :, -5:] = 0
        return found


@pytest.fixture(params=RECIPES)
def both(request: Any, tmp_path: Path) -> Both:
    return Both(RECIPES[request.param], tmp_path)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """nnU-Net adds up in float16 on any device; here in float32, with the same weights."""
    monkeypatch.setattr(torch, "half", torch.float32)
    return


@pytest.mark.quick(2)
def test_logits_and_labels_are_those_of_nnunet(both: Both, exact: None) -> None:
    raw, theirs = both.scan(), both.predictor
    case = {"spacing": SPACING}
    ready = next(
        PreprocessAdapterFromNpy(
            [raw.astype(np.float32)], [None], [case], [None],
            theirs.plans_manager, theirs.dataset_json, theirs.configuration_manager, 1, False,
        )
    )  # fmt: skip
    wanted = theirs.predict_logits_from_preprocessed_data(ready["data"]).numpy()
    labels = theirs.predict_single_npy_array(raw.astype(np.float32), {"spacing": SPACING})
    weights, members = both.saved().weights, members_of(both.saved())
    assert len(members) == len(both.recipe.folds)
    volume = ArrayVolume(raw, "raw", tuple(n * 1e6 for n in SPACING))
    prepared = prepare(volume, weights.config.data.prepare)
    np.testing.assert_allclose(prepared.array, ready["data"].numpy(), atol=1e-5)
    with scan_model(weights, members) as model:
        windows = windows_of(weights.config, prepared)
        array, inside = padded(prepared.array, windows.size)
        runs = [partial(model.logits, member=number) for number in range(len(members))]
        planes = mean_planes(array, windows, model.channels, runs)
        found = np.concatenate(list(planes), axis=1)[:, *inside.slices()]
        assert wanted.std() > 0.3
        np.testing.assert_allclose(found, wanted, atol=1e-4)
        ours = labelled(model, prepared, weights.config)
        restored = logits_of(model, prepared, weights.config)
    assert restored.shape[1:] == raw.shape[1:]
    # But for ties: voxels whose logits are equal but for rounding.
    differ = ours != labels
    assert differ.sum() <= ours.size / 1e4
    top = np.sort(restored, axis=0)
    margin = top[-1] - top[-2] if both.recipe.regions is None else np.abs(restored).min(axis=0)
    assert margin[differ].max(initial=0) < 1e-3


@pytest.mark.slow
def test_labels_lie_where_nnunet_writes_them(tmp_path: Path) -> None:
    """Files in, files out, by both commands; nnU-Net adds up in float16 as ever."""
    both = Both(Recipe(schemes=("ZScoreNormalization", CT), masks=(True, False)), tmp_path)
    affine = np.diag([-0.8, 0.9, 1.3, 1.0])
    affine[:3, :3] = (
        Rotation.from_euler("xyz", [5, -8, 3], degrees=True).as_matrix() @ affine[:3, :3]
    )
    affine[:3, 3] = 10, 20, 30
    images = tmp_path / "images"
    images.mkdir()
    for number, channel in enumerate(both.scan()):
        image = nibabel.Nifti1Image(channel.transpose(2, 1, 0), affine)
        image.to_filename(images / f"a_{number:04d}.nii.gz")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    both.predictor.predict_from_files_sequential(str(images), str(theirs))
    line = ["predict", both.model, "--threads", 1]
    assert status_of(*line, "--input", images, "--output", tmp_path / "ours") == 0
    files = [part for n in (0, 1) for part in ("--input", images / f"a_000{n}.nii.gz")]
    assert status_of(*line, *files, "--output", tmp_path / "alone.nii.gz") == 0
    wanted = nibabel.load(theirs / "a.nii.gz")
    for path in (tmp_path / "ours" / "a.nii.gz", tmp_path / "alone.nii.gz"):
        found = nibabel.load(path)
        np.testing.assert_allclose(found.affine, wanted.affine, atol=1e-4)
        different = np.asarray(found.dataobj) != np.asarray(wanted.dataobj)
        assert different.mean() < 2e-3


def test_a_scan_smaller_than_a_window(tmp_path: Path, exact: None) -> None:
    both = Both(Recipe(mirrored=None), tmp_path)
    raw = both.scan((14, 30, 29))
    wanted = both.predictor.predict_single_npy_array(raw.astype(np.float32), {"spacing": [1, 1, 1]})
    weights = both.saved().weights
    volume = ArrayVolume(raw, "raw", (1e6, 1e6, 1e6))
    prepared = prepare(volume, weights.config.data.prepare)
    with scan_model(weights, members_of(both.saved())) as model:
        found = labelled(model, prepared, weights.config)
    assert (found != wanted).sum() <= 1
    assert len(np.unique(found)) > 1


@pytest.mark.slow
def test_windows_and_weights_are_those_of_nnunet() -> None:
    from nnunetv2.inference.sliding_window_prediction import (
        compute_gaussian,
        compute_steps_for_sliding_window,
    )

    from znnpy.infer.sliding_window import Windows

    rng = np.random.default_rng(0)
    for _ in range(300):
        size = tuple(int(n) for n in rng.integers(2, 40, 3))
        extent = tuple(n + int(more) for n, more in zip(size, rng.integers(0, 200, 3), strict=True))
        found = Windows(size, (0.5, 0.5, 0.5), "nnunet", extent, spread="even")
        assert [[*axis] for axis in found.starts] == compute_steps_for_sliding_window(
            extent, size, 0.5
        )
    for size in ((8, 12, 10), (64, 64, 64), (5, 7, 9), (28, 96, 96)):
        wanted = compute_gaussian(size, 1 / 8, 10, device=torch.device("cpu")).float().numpy()
        made = Windows(size, (0.5, 0.5, 0.5), "nnunet", (200, 200, 200), spread="even").weight
        # Of voxels that round to other float16 numbers there are few, by the order of factors.
        np.testing.assert_allclose(made, wanted, rtol=2e-3, atol=1e-7)
