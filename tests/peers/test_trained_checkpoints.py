"""Checkpoints as torch.save writes them for torch-em and pytorch-3dunet, taken over by name, beside the module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("monai")

from called import status_of  # noqa: E402
from class_nets import OTHERS, written  # noqa: E402

from znnpy.data.opening import open_volume  # noqa: E402


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["torch-em", "UNet3D", "ResidualUNetSE3D"])
def test_a_prediction_by_command(name: str, tmp_path: Path) -> None:
    """Of a volume as large as one window: what the module says of it, normalised."""
    known = OTHERS[name]
    net, image = known.module(), known.image()[0] * 20 + 100
    np.save(tmp_path / "image.npy", image.numpy())
    with torch.no_grad():
        wanted = net((image[None] - image.mean()) / image.std(unbiased=False))[0].numpy()
    model, made = written(known, net, tmp_path), tmp_path / "made.h5"
    line = ["predict", model, "--input", tmp_path / "image.npy", "--output", made]
    size = ",".join(str(n) for n in wanted.shape[1:])
    assert status_of(*line, "--patch", size, "--borders", "mirror", "--threads", 1) == 0
    with open_volume(str(made)) as volume:
        found = volume.read_all()
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.ptp(wanted))
