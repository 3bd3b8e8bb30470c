#!/usr/bin/env python3
"""nnU-Net's models by nnU-Net and by znnpy: wall time and peak memory of each, side by side, and where labels differ.

    scripts/bench_nnunet.py make FOLDER --patch 64,96,96 --image 96,144,144   # a model by nnU-Net's trainer, and a scan
    scripts/bench_nnunet.py train FOLDER --net 2d   # one that nnU-Net plans and trains on the shipped sample
    scripts/bench_nnunet.py compare FOLDER --threads 2 [--no-mirroring]
    scripts/bench_nnunet.py compare FOLDER --model nnUNetTrainer__nnUNetPlans__3d_fullres --images imagesTs

FOLDER gets what both write; without --model and --images it holds them, as `make` or `train` has written them. Each
predicts from file to file in a process of its own, imports included; nnU-Net by predict_from_files_sequential, which
takes less memory than its pools of processes. `--warm` compiles znnpy's kernels by a run that does not count; ratios
are of the best of all rounds. Processor time is told beside wall time, which says little on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from peers import nnunet_training
from peers.measured_commands import compared, measured

ROOT = Path(__file__).resolve().parents[1]
THEIRS = """
import sys, torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
model, images, output, threads, mirroring = sys.argv[1:]
torch.set_num_threads(int(threads))
predictor = nnUNetPredictor(use_mirroring=mirroring == "yes", device=torch.device("cpu"), allow_tqdm=False)
predictor.initialize_from_trained_model_folder(model, None)
predictor.predict_from_files_sequential(images, output)
"""


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make")
    make.add_argument("folder", type=Path)
    make.add_argument("--patch", type=_sizes, default=(64, 96, 96))
    make.add_argument("--image", type=_sizes, default=(96, 144, 144))
    make.add_argument("--widths", type=_sizes, default=(32, 64, 128, 256, 320))
    make.add_argument(
        "--spacing", type=float, default=1.0, help="of the scan; that of the net is 1"
    )
    make.add_argument("--residual", action="store_true")
    train = commands.add_parser("train")
    train.add_argument("folder", type=Path, help="a new one")
    train.add_argument("--net", choices=nnunet_training.NETS, required=True)
    train.add_argument("--iterations", type=int, default=4, help="updates a fold")
    train.add_argument("--threads", type=int, default=2)
    compare = commands.add_parser("compare")
    compare.add_argument("folder", type=Path)
    compare.add_argument(
        "--model", type=Path, help="model folder of nnU-Net (default: FOLDER/model)"
    )
    compare.add_argument("--images", type=Path, help="folder of scans (default: FOLDER/images)")
    compare.add_argument("--threads", type=int, default=2)
    compare.add_argument("--no-mirroring", action="store_true")
    compare.add_argument("--repeat", type=int, default=1)
    compare.add_argument("--warm", action="store_true", help="compile kernels first")
    given = parser.parse_args()
    {"make": _make, "train": _train, "compare": _compare}[given.command](given)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _make(given: argparse.Namespace) -> None:
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "peers")]
    import nibabel
    from nnunet_folder import written
    from nnunet_plans import Recipe
    from scipy.ndimage import gaussian_filter

    axes = len(given.patch)
    recipe = Recipe(
        patch=given.patch, spacing=(1.0,) * axes, widths=given.widths, residual=given.residual,
        mirrored=tuple(range(axes)),
    )  # fmt: skip
    given.folder.mkdir(parents=True)
    model = written(recipe, given.folder)
    model.rename(given.folder / "model")
    noise = np.random.default_rng(0).standard_normal(given.image[::-1])
    scan = (gaussian_filter(noise, 3) * 8000).astype(np.int16)
    (given.folder / "images").mkdir()
    affine = np.diag([given.spacing] * 3 + [1.0])
    nibabel.Nifti1Image(scan, affine).to_filename(given.folder / "images" / "a_0000.nii.gz")


def _train(given: argparse.Namespace) -> None:
    if given.folder.exists():
        sys.exit(f"{given.folder} exists already; name a new folder")
    if given.iterations < 1:
        sys.exit("--iterations: at least 1")
    net = nnunet_training.NETS[given.net]
    nnunet_training.trained(given.folder.resolve(), net, given.iterations, given.threads)


def _compare(given: argparse.Namespace) -> None:
    folder, threads = given.folder, str(given.threads)
    model, images = str(given.model or folder / "model"), str(given.images or folder / "images")
    folder.mkdir(parents=True, exist_ok=True)
    mirrored = "no" if given.no_mirroring else "yes"
    run = folder / "run"
    command = [sys.executable, "-m", "znnpy"]
    if not run.exists():
        measured([*command, "import", model, "--output", str(run)], given.threads)
    ours = [*command, "predict", str(run), "--input", images, "--threads", threads, "--overwrite"]
    ours += ["--augment", "none"] if given.no_mirroring else []
    if given.warm:
        measured([*ours, "--output", str(folder / "ours")], given.threads)
    lines = []
    for number in range(given.repeat):
        theirs = folder / f"theirs{number}"
        theirs.mkdir(exist_ok=True)
        script = [sys.executable, "-c", THEIRS, model, images, str(theirs), threads, mirrored]
        lines.append((script, [*ours, "--output", str(folder / "ours")]))
    compared("nnU-Net", lines, given.threads)
    print(json.dumps(_differing(folder)))


def _differing(folder: Path) -> dict[str, Any]:
    """Return how many voxels of all cases have other labels."""
    import nibabel

    voxels, other, labels = 0, 0, set[int]()
    for path in sorted((folder / "ours").glob("*.nii.gz")):
        ours, theirs = (
            np.asarray(nibabel.load(folder / it / path.name).dataobj) for it in ("ours", "theirs0")
        )
        voxels, other = voxels + ours.size, other + int((ours != theirs).sum())
        labels |= set(np.unique(ours).tolist())
    return {"voxels": voxels, "labels": len(labels), "other": other}


if __name__ == "__main__":
    main()
