#!/usr/bin/env python3
"""A bundle of MONAI by MONAI, a package of bioimage.io by its core library, both by znnpy: time, memory, differences.

    scripts/bench_packages.py bundle FOLDER [--image 96,160,160]     # UNet of the model zoo's spleen_ct_segmentation
    scripts/bench_packages.py bundle FOLDER --image 220,270,270      # a scan of natural size: 100 windows
    scripts/bench_packages.py package FOLDER [--image 64,256,256]    # a valid U-Net, as `znnpy export` writes it
    scripts/bench_packages.py package FOLDER --alone --image 512,1024,1024 --max-memory 1GiB   # znnpy alone

FOLDER gets what is made, once, with random weights, and what both write. Whole commands from file to file, each in a
process of its own, imports included. MONAI's loads, prepares, runs its sliding windows, puts back and saves labels as
its bundle says; bioimage.io's computes the whole image at once. The second needs
`bioimageio.core`, the first `monai`. `--warm` compiles znnpy's kernels by a run that does not count.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from peers.measured_commands import MIB, compared, measured

ROOT = Path(__file__).resolve().parents[1]
BY_MONAI = """
import sys, numpy, torch, nibabel
from monai.bundle import ConfigParser
from monai.data import MetaTensor
folder, image, output, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
parser = ConfigParser()
parser.read_config(folder + "/configs/inference.json")
net = parser.get_parsed_content("network_def").eval()
net.load_state_dict(torch.load(folder + "/models/model.pt", weights_only=True))
before, inferer = (parser.get_parsed_content(it) for it in ("preprocessing", "inferer"))
ready = before({"image": image})
with torch.no_grad():
    logits = inferer(ready["image"][None], net)[0]
logits = MetaTensor(logits.as_tensor(), meta=ready["image"].meta)
logits.applied_operations = ready["image"].applied_operations
labels = before.inverse({"image": logits})["image"].argmax(0).numpy().astype(numpy.uint8)
nibabel.Nifti1Image(labels, nibabel.load(image).affine).to_filename(output)
"""
BY_CORE = """
import sys, numpy, torch, bioimageio.core
package, image, output, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
from pathlib import Path
found = bioimageio.core.predict(model=Path(package), inputs=numpy.load(image)[None, None])
(member,) = found.members.values()
numpy.save(output, numpy.asarray(member.data)[0])
"""
SPLEEN = {
    "network_def": {
        "_target_": "UNet", "spatial_dims": 3, "in_channels": 1, "out_channels": 2,
        "channels": [16, 32, 64, 128, 256], "strides": [2, 2, 2, 2], "num_res_units": 2, "norm": "batch",
    },
    "preprocessing": {"_target_": "Compose", "transforms": [
        {"_target_": "LoadImaged", "keys": "image"},
        {"_target_": "EnsureChannelFirstd", "keys": "image"},
        {"_target_": "Orientationd", "keys": "image", "axcodes": "RAS"},
        {"_target_": "Spacingd", "keys": "image", "pixdim": [1.5, 1.5, 2.0], "mode": "bilinear"},
        {"_target_": "ScaleIntensityRanged", "keys": "image", "a_min": -57, "a_max": 164, "b_min": 0, "b_max": 1,
         "clip": True},
    ]},
    "inferer": {"_target_": "SlidingWindowInferer", "roi_size": [96, 96, 96], "sw_batch_size": 4, "overlap": 0.5},
}  # fmt: skip
VALID = {"unet": {"widths": [16, 32, 64], "norm": None, "padding": "valid"}}


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("bundle", "package"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--image", type=_sizes, help="voxels of the scan, z, y, x")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--max-memory", help="of znnpy")
    parser.add_argument("--alone", action="store_true", help="znnpy alone")
    parser.add_argument("--warm", action="store_true", help="compile kernels first")
    given = parser.parse_args()
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "peers")]
    given.folder.mkdir(parents=True, exist_ok=True)
    (_bundle if given.what == "bundle" else _package)(given)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _bundle(given: argparse.Namespace) -> None:
    import nibabel

    folder = given.folder / "bundle"
    image = given.folder / "scan.nii.gz"
    if not folder.exists():
        _make_bundle(folder)
    if not image.exists():
        scan = _smooth(given.image or (96, 160, 160)).T * 200
        affine = np.diag([1.5, 1.5, 2.0, 1.0])
        nibabel.Nifti1Image(scan.astype(np.int16), affine).to_filename(image)
    outputs = [given.folder / f"{name}.nii.gz" for name in ("theirs", "ours")]
    script = ["-c", BY_MONAI, str(folder), str(image), str(outputs[0]), str(given.threads)]
    _run(given, "MONAI", folder, [sys.executable, *script], image, outputs[1])
    if not given.alone:
        _tell(*(np.asarray(nibabel.load(path).dataobj) for path in outputs))


def _make_bundle(folder: Path) -> None:
    import torch
    from carried import shuffled, tamed
    from monai.bundle import ConfigParser

    torch.manual_seed(0)
    net = ConfigParser(dict(SPLEEN)).get_parsed_content("network_def")
    shuffled(net, 1)
    tamed(net)
    for name in ("configs", "models"):
        (folder / name).mkdir(parents=True)
    (folder / "configs/inference.json").write_text(json.dumps(SPLEEN))
    (folder / "configs/metadata.json").write_text(json.dumps({"name": "A net"}))
    torch.save(net.state_dict(), folder / "models/model.pt")


def _package(given: argparse.Namespace) -> None:
    from exported_runs import run_of

    package, image = given.folder / "net.zip", given.folder / "image.npy"
    if not package.exists():
        made = given.folder / "made"
        data = {"normalize": {"kind": "fixed", "mean": [0.0], "deviation": [1.0]}}
        run_of(made, VALID, data=data, training={"output_shape": 44})
        line = [*_znnpy(), "export", str(made), "--format", "bioimageio", "--output", str(package)]
        measured(line, given.threads)
    if not image.exists():
        np.save(image, _smooth(given.image or (64, 256, 256)))
    outputs = given.folder / "theirs.npy", given.folder / "ours.h5"
    theirs = [
        sys.executable, "-c", BY_CORE, str(package), str(image), str(outputs[0]), str(given.threads)
    ]  # fmt: skip
    _run(given, "bioimageio", package, theirs, image, outputs[1])
    if not given.alone:
        import h5py

        with h5py.File(outputs[1]) as file:
            _tell(np.load(outputs[0]), file["prediction"][:])


def _run(
    given: argparse.Namespace, name: str, model: Path, theirs: list[str], image: Path, output: Path
) -> None:
    run = given.folder / "run"
    if not run.exists():
        measured([*_znnpy(), "import", str(model), "--output", str(run)], given.threads)
    ours = [*_znnpy(), "predict", str(run), "--input", str(image), "--output", str(output)]
    ours += ["--threads", str(given.threads), "--overwrite"]
    ours += ["--max-memory", given.max_memory] if given.max_memory else []
    if given.warm:
        measured(ours, given.threads)
    if given.alone:
        cost = measured(ours, given.threads)
        print(
            f"znnpy {cost.seconds:.1f} s {cost.processor:.1f} processor s {cost.peak / MIB:.0f} MiB"
        )
        print(f"the image has {image.stat().st_size / MIB:.0f} MiB")
        return
    compared(name, [(theirs, ours)] * given.repeat, given.threads)


def _znnpy() -> list[str]:
    return [sys.executable, "-m", "znnpy"]


def _smooth(shape: tuple[int, ...]) -> Any:
    """Return a random image, float32, smooth plane by plane."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(0)
    found = np.empty(shape, np.float32)
    for plane in found:
        plane[...] = gaussian_filter(rng.standard_normal(shape[1:], np.float32), 3) * 8
    return found


def _tell(theirs: Any, ours: Any) -> None:
    if theirs.shape != ours.shape:
        print(f"shapes: {theirs.shape} and {ours.shape}")
    elif theirs.dtype.kind == "f":
        print(f"largest difference {abs(theirs - ours).max():.2g} of a range of {np.ptp(ours):.2g}")
    else:
        print(f"{(theirs != ours).sum()} of {ours.size} voxels have other labels")


if __name__ == "__main__":
    main()
