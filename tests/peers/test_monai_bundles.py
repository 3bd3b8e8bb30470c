"""Bundles of MONAI with random weights, run by MONAI's own parser, transforms and inferer, beside their import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.spatial.transform import Rotation

torch = pytest.importorskip("torch")
pytest.importorskip("monai")

from called import status_of  # noqa: E402
from carried import shuffled, tamed  # noqa: E402
from monai.bundle import ConfigParser  # noqa: E402
from monai.data import MetaTensor  # noqa: E402

from znnpy.data.opening import open_volume  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of other libraries

UNET = {
    "_target_": "UNet", "spatial_dims": 3, "in_channels": "@channels", "out_channels": 3, "channels": [4, 8, 16],
    "strides": [2, 2], "num_res_units": 1, "norm": "batch",
}  # fmt: skip
SEGRESNET = {
    "_target_": "monai.networks.nets.SegResNet", "init_filters": 8, "in_channels": 1, "out_channels": 1,
    "blocks_down": [1, 1], "blocks_up": [1],
}  # fmt: skip
ORIENTED = {"_target_": "Orientationd", "keys": "image", "axcodes": "RAS"}
SPACED = {"_target_": "Spacingd", "keys": ["image"], "pixdim": [1.5, 1.1, 2.0], "mode": "bilinear"}
CT = {
    "_target_": "ScaleIntensityRanged", "keys": "image", "a_min": -57, "a_max": 164, "b_min": 0, "b_max": 1,
    "clip": True,
}  # fmt: skip
NORMALISED = {
    "_target_": "NormalizeIntensityd",
    "keys": "image",
    "nonzero": True,
    "channel_wise": True,
}
SIZED = {"_target_": "ScaleIntensityd", "keys": ["image"]}


def config(network: Any, transforms: list[Any], **more: Any) -> dict[str, Any]:
    """A bundle's inference.json."""
    load = [
        {"_target_": "LoadImaged", "keys": "@key"},
        {"_target_": "EnsureChannelFirstd", "keys": "@key"},
    ]
    return {
        "imports": ["$import glob"], "channels": 1, "key": "image", "bundle_root": ".",
        "device": "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')",
        "network_def": network, "network": "$@network_def.to(@device)",
        "preprocessing": {"_target_": "Compose", "transforms": [*load, *transforms]},
        "inferer": {
            "_target_": "SlidingWindowInferer", "roi_size": [16, 16, 16], "sw_batch_size": 2, "overlap": 0.5,
            "mode": "gaussian",
        },
        **more,
    }  # fmt: skip


BUNDLES: dict[str, dict[str, Any]] = {
    "UNet, turned, resampled, CT": config(UNET, [ORIENTED, SPACED, CT]),
    "SegResNet, as it lies": config(
        SEGRESNET, [NORMALISED],
        inferer={"_target_": "SlidingWindowInferer", "roi_size": [16, 24, 16]},
        postprocessing={
            "_target_": "Compose",
            "transforms": [
                {"_target_": "Activationsd", "keys": "pred", "sigmoid": True},
                {"_target_": "AsDiscreted", "keys": "pred", "threshold": 0.5},
            ],
        },
    ),
    "UNet, turned otherwise": config(
        UNET, [{**ORIENTED, "axcodes": "PSL"}, {"_target_": "EnsureTyped", "keys": "image"}, SIZED]
    ),
}  # fmt: skip


class Both:
    """A bundle's folder, MONAI's objects of it, and a scan whose axes run otherwise."""

    def __init__(self, said: dict[str, Any], folder: Path, upright: bool) -> None:
        self.folder = folder / "bundle"
        (self.folder / "configs").mkdir(parents=True)
        (self.folder / "models").mkdir()
        (self.folder / "configs/inference.json").write_text(json.dumps(said))
        (self.folder / "configs/metadata.json").write_text(json.dumps({"name": "A net"}))
        self.parser = ConfigParser(said)
        torch.manual_seed(0)
        net = self.parser.get_parsed_content("network_def")
        shuffled(net, 1)
        tamed(net)
        self.net = net.eval()
        rng = np.random.default_rng(0)
        raw = gaussian_filter(rng.standard_normal((26, 31, 23)), 1) * 400
        raw[:3] = 0
        turn = Rotation.from_euler("xyz", [8, -5, 3], degrees=True).as_matrix()
        if upright:
            turn = np.eye(3)
        affine = np.eye(4)
        affine[:3, :3] = turn @ [[0, -1.1, 0], [0.9, 0, 0], [0, 0, -1.4]]
        affine[:3, 3] = 10, -20, 30
        self.scan = folder / "scan.nii.gz"
        nibabel.Nifti1Image(raw.astype(np.float32), affine).to_filename(self.scan)
        _, logits = self.theirs()
        with torch.no_grad():  # both sides of 0
            [*self.net.parameters()][-1 if "Seg" in said["network_def"]["_target_"] else 0].sub_(
                float(np.median(logits)) if len(logits) == 1 else 0
            )
        torch.save(self.net.state_dict(), self.folder / "models/model.pt")

    def theirs(self) -> tuple[Any, Any]:
        """Logits of the prepared scan as MONAI makes them, and where they came from, put back by MONAI."""
        before = self.parser.get_parsed_content("preprocessing")
        inferer = self.parser.get_parsed_content("inferer")
        ready = before({"image": str(self.scan)})
        with torch.no_grad():
            logits = inferer(ready["image"][None], self.net)[0]
        logits = MetaTensor(logits.as_tensor(), meta=ready["image"].meta)
        logits.applied_operations = ready["image"].applied_operations
        back = before.inverse({"image": logits})["image"]
        return logits, back.as_tensor().numpy()


@pytest.mark.quick(2)
@pytest.mark.parametrize("upright", [False, True])
@pytest.mark.parametrize("name", BUNDLES)
def test_logits_and_labels_are_those_of_monai(name: str, upright: bool, tmp_path: Path) -> None:
    both = Both(BUNDLES[name], tmp_path, upright)
    _, wanted = both.theirs()
    run, found = tmp_path / "run", tmp_path / "logits.h5"
    assert status_of("import", both.folder, "--output", run) == 0
    line = ["predict", run, "--input", both.scan, "--threads", 1]
    assert status_of(*line, "--output", found, "--logits") == 0
    assert status_of(*line, "--output", tmp_path / "labels.nii.gz") == 0
    with open_volume(str(found)) as volume:
        ours = volume.read_all().transpose(0, 3, 2, 1)
    assert wanted.std() > 0.05
    np.testing.assert_allclose(ours, wanted, atol=2e-4 * np.ptp(wanted))
    image = nibabel.load(tmp_path / "labels.nii.gz")
    np.testing.assert_allclose(image.affine, nibabel.load(both.scan).affine, atol=1e-5)
    labels = np.asarray(image.dataobj)
    expected = wanted.argmax(0) if len(wanted) > 1 else wanted[0] > 0
    assert len(np.unique(labels)) > 1
    assert (labels != expected).mean() < 1e-3
