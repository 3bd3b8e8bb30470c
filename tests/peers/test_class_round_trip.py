"""A network of a class there, taken over, trained here, and back in its class."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("monai")

from called import status_of  # noqa: E402
from class_nets import OTHERS, written  # noqa: E402

from znnpy.data.opening import open_volume  # noqa: E402


@pytest.mark.parametrize("name", ["UNet3D"])
def test_from_torch_and_back(name: str, tmp_path: Path) -> None:
    known = OTHERS[name]
    net, image = known.module(), known.image()[0] * 20 + 100
    run, tuned = tmp_path / "run", tmp_path / "tuned"
    assert status_of("import", written(known, net, tmp_path), "--output", run) == 0
    size = [int(n) for n in image.shape[1:]]
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["raw"] = image[0].numpy()
        ones = (np.arange(image[0].numel()) % 7 == 0).reshape(size)
        file["labels"] = np.stack([ones, ~ones]).astype(np.uint8)
    (tmp_path / "more.yaml").write_text((run / "config.yaml").read_text())
    settings = {
        "data.train": f"[{{image: {tmp_path}/v.h5:raw, labels: {tmp_path}/v.h5:labels}}]",
        "data.target": "mask",
        "training.start_from": run,
        "training.iterations": 3,
        "training.output_shape": size,
        "training.conv": "direct",
        "run.directory": tuned,
        "run.threads": 1,
    }
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    assert status_of("train", tmp_path / "more.yaml", *given) == 0
    assert status_of("export", tuned, "--format", "state-dict", "--output", tmp_path / "a.pth") == 0
    before = {key: value.clone() for key, value in net.state_dict().items()}
    net.load_state_dict(torch.load(tmp_path / "a.pth", weights_only=True))
    assert any(not torch.equal(before[key], value) for key, value in net.state_dict().items())
    np.save(tmp_path / "image.npy", image.numpy())
    line = ["predict", tuned, "--input", tmp_path / "image.npy", "--output", tmp_path / "made.h5"]
    assert status_of(*line, "--patch", ",".join(map(str, size)), "--borders", "mirror") == 0
    with open_volume(str(tmp_path / "made.h5")) as volume:
        found = volume.read_all()
    with torch.no_grad():
        wanted = net((image[None] - image.mean()) / image.std(unbiased=False))[0].numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.ptp(wanted))
