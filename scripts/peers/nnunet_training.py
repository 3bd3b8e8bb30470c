"""Model folders of nnU-Net's own planning, preprocessing and training, on the sample of `volumes/fibsem`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

SAMPLE = Path(__file__).resolve().parents[2] / "volumes" / "fibsem"
NAME, CASE, ENDING = "Dataset001_FIBSEM", "train", ".nii.gz"
LABELS = {"interior": 0, "membrane": 1, "far from membranes": 2}
FAR = 8  # voxels from the next membrane


class Net(NamedTuple):
    """What nnU-Net plans a network by: its planner, the name of its plans, a configuration of them; and the folds."""

    planner: str
    plans: str
    configuration: str
    folds: tuple[int, ...] = (0,)


NETS = {
    "2d": Net("ExperimentPlanner", "nnUNetPlans", "2d", (0, 1)),
    "3d": Net("ExperimentPlanner", "nnUNetPlans", "3d_fullres"),
    "resenc": Net("nnUNetPlannerResEncM", "nnUNetResEncUNetMPlans", "3d_fullres"),
}


def trained(folder: Path, net: Net, iterations: int, threads: int) -> None:
    """Write a new folder: `model`, trained for so many updates a fold, `images`, a scan that no fold has seen.

    What nnU-Net writes on its way is beside them, and its environment variables of this process say so.
    """
    for name in ("raw", "preprocessed", "results"):
        os.environ[f"nnUNet_{name}"] = str(folder / name)
    # The planner takes the processes that augment for PyTorch's threads: 0, which suits the trainer, is none.
    os.environ |= {"nnUNet_n_proc_DA": "1", "nnUNet_def_n_proc": "1", "nnUNet_compile": "false"}
    _write_raw(folder / "raw" / NAME)
    _write_scan(folder / "images" / f"test_0000{ENDING}", _values("test-image.h5"))
    dataset = _planned(folder, net)
    # Data is augmented where it is trained: a few updates need no processes for it.
    os.environ |= {"nnUNet_n_proc_DA": "0"}
    for fold in net.folds:
        _train(folder, net, dataset, fold, iterations, threads)
    (model,) = (folder / "results" / NAME).iterdir()
    shutil.move(model, folder / "model")


def _values(file: str) -> NDArray[np.generic]:
    """The voxels (z, y, x) of a file of the sample."""
    with h5py.File(SAMPLE / file) as volume:
        return np.asarray(volume["stack"])


def _write_raw(folder: Path) -> None:
    """Write the dataset as nnU-Net takes it."""
    _write_scan(folder / "imagesTr" / f"{CASE}_0000{ENDING}", _values("train-image.h5"))
    _write_scan(folder / "labelsTr" / f"{CASE}{ENDING}", _labels(_values("train-gt.lzf.h5")))
    background, *others = LABELS
    said = {
        "channel_names": {"0": "electron microscopy"},
        "labels": {"background": LABELS[background], **{name: LABELS[name] for name in others}},
        "numTraining": 1,
        "file_ending": ENDING,
    }
    (folder / "dataset.json").write_text(json.dumps(said))


def _labels(objects: NDArray[np.generic]) -> NDArray[np.uint8]:
    """What nnU-Net learns of objects (z, y, x), 0 between them."""
    from scipy.ndimage import distance_transform_edt

    found = np.full(objects.shape, LABELS["interior"], np.uint8)
    found[distance_transform_edt(objects != 0) >= FAR] = LABELS["far from membranes"]
    found[objects == 0] = LABELS["membrane"]
    return found


def _write_scan(path: Path, values: NDArray[np.generic]) -> None:
    import nibabel

    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.Nifti1Image(values.T.astype(np.uint8), np.eye(4)).to_filename(path)


def _planned(folder: Path, net: Net) -> dict[str, object]:
    """Let nnU-Net look at the data, plan and preprocess; return what it was told of the data."""
    from nnunetv2.experiment_planning.plan_and_preprocess_api import (
        extract_fingerprints,
        plan_experiments,
        preprocess,
    )

    extract_fingerprints([1], num_processes=1, check_dataset_integrity=True)
    plans = plan_experiments([1], net.planner)
    assert plans == net.plans, plans
    preprocess([1], plans, (net.configuration,), num_processes=(1,))
    prepared = folder / "preprocessed" / NAME
    # There is one case, and its scores are of no use.
    splits = [{"train": [CASE], "val": [CASE]} for _ in net.folds]
    (prepared / "splits_final.json").write_text(json.dumps(splits))
    return json.loads((prepared / "dataset.json").read_text())


def _train(
    folder: Path, net: Net, dataset: dict[str, object], fold: int, iterations: int, threads: int
) -> None:
    import torch
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    torch.set_num_threads(threads)
    torch.manual_seed(fold)
    np.random.seed(fold)  # batchgenerators draws from there
    plans = json.loads((folder / "preprocessed" / NAME / f"{net.plans}.json").read_text())
    plans["continue_training"] = False
    trainer = nnUNetTrainer(plans, net.configuration, fold, dataset, torch.device("cpu"))
    # Said to the trainer, as nnU-Net's predictor looks for a class of its own by the name in the checkpoint.
    trainer.num_epochs, trainer.num_iterations_per_epoch = 1, iterations
    trainer.num_val_iterations_per_epoch = 1
    trainer.run_training()
