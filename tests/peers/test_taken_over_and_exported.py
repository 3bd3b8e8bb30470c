"""Nets of PyTorch taken over, trained here, and taken elsewhere: what other programs make of the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("monai")
pytest.importorskip("dynamic_network_architectures")
pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from called import status_of  # noqa: E402
from exported_runs import imported  # noqa: E402
from taken_nets import expected, exported, made  # noqa: E402

import znnpy  # noqa: E402
from znnpy.errors import ExportError  # noqa: E402
from znnpy.geometry import fit_input  # noqa: E402
from znnpy.train.progress import Quiet  # noqa: E402
from znnpy.train.start import SavedRun, read_run  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of PyTorch's exporter
UPDATES = 4
NEAR = 1e-5
"""Of the range of an output."""
# Attention, growth between corners, means and products, pixel shuffles, pads, resizes.
NETS = (
    "AttentionUnet", "SegResNet", "squeeze and excitation", "SegResNet, pixel shuffle", "resized, linear",
    "resized, nearest",
)  # fmt: skip


def trained(folder: Path, image: Any, channels: int) -> SavedRun:
    """A few updates of the imported run, on noise."""
    rng, size = np.random.default_rng(2), [n + 4 for n in image.shape[2:]]
    with h5py.File(folder / "volume.h5", "w") as file:
        file["raw"] = rng.standard_normal(size).astype(np.float32)
        file["labels"] = (rng.random((channels, *size)) > 0.5).astype(np.uint8)
    text = (folder / "first" / "config.yaml").read_text()
    volume = f"{{image: {folder}/volume.h5:raw, labels: {folder}/volume.h5:labels}}"
    for old, new in (
        ("train: []", f"train: [{volume}]"),
        ("  iterations: ", f"  start_from: {folder / 'first'}\n  iterations: "),
        (f"directory: {folder / 'first'}", f"directory: {folder / 'second'}"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "config.yaml").write_text(text)
    line = ("train", folder / "config.yaml", "--threads", 1, "--quiet")
    said = ("--set", "data.target=mask", "--set", f"training.iterations={UPDATES}")
    assert status_of(*line, *said) == 0
    return read_run(folder / "second", Quiet())


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", NETS)
def test_from_onnx_to_onnx_and_pytorch(name: str, tmp_path: Path) -> None:
    net, image = made(name)
    exported(net, image, tmp_path / "net.onnx", dynamo=False)
    assert status_of("import", tmp_path / "net.onnx", "--output", tmp_path / "first") == 0
    (before,) = expected(net, image)
    saved = trained(tmp_path, image, before.shape[1])
    assert saved.checkpoint.iteration == UPDATES
    for kind, path in (("onnx", "net2.onnx"), ("torch", "net2.py")):
        line = ("export", tmp_path / "second", "--format", kind, "--output", tmp_path / path)
        assert status_of(*line) == 0
    again, given = imported(tmp_path / "net2.py").load(), image.numpy()
    wanted = values_of(saved, given, "float64")
    assert np.abs(wanted - before).max() > 1e-3 * np.ptp(wanted)  # it has learned something
    with torch.no_grad():
        single, double = again(image).numpy(), again.double()(image.double()).numpy()
    np.testing.assert_allclose(double, wanted, rtol=0, atol=1e-9 * np.ptp(wanted))
    session = runtime.InferenceSession(tmp_path / "net2.onnx")
    (by_onnx,) = session.run(None, {session.get_inputs()[0].name: given})
    for found in (by_onnx, single, values_of(saved, given, "float32")):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=NEAR * np.ptp(wanted))


def values_of(saved: SavedRun, image: Any, precision: Any) -> Any:
    """What znnpy itself predicts."""
    shapes = fit_input(saved.network, image.shape[2:]).output_shapes
    with znnpy.Model(
        saved.network, shapes, loss=saved.config.training.loss, training=False, threads=1,
        hardware=znnpy.Hardware(precision=precision),
    ) as model:  # fmt: skip
        model.set_parameters(saved.parameters)
        return model.predict(image)


@pytest.mark.parametrize("name", ["squeeze and excitation", "PlainConvUNet"])
def test_from_a_module_and_back(name: str) -> None:
    """Updates of `from_torch`, whose weights the module takes, under all the names that it has for them."""
    net, image = made(name)
    net.unused = torch.nn.Conv3d(1, 1, 1)
    (before,) = expected(net, image)
    with znnpy.from_torch(net, image, loss="square", threads=1) as model:
        for _ in range(UPDATES):
            model.step(image.numpy(), np.zeros_like(before), learning_rate=0.1)
        state = {key: torch.from_numpy(it) for key, it in model.to_state_dict().items()}
        wanted = model.predict(image.numpy())
    assert [*state] == [*net.state_dict()]
    net.load_state_dict(state, strict=True)
    (found,) = expected(net, image)
    assert np.abs(found - before).max() > 1e-3 * np.ptp(before)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=NEAR * np.ptp(wanted))


class Turned(torch.nn.Module):
    """A shift that is subtracted, which a parameter here has with the other sign."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.shift = torch.nn.Conv3d(1, 2, 1), torch.nn.Parameter(torch.ones(2, 1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.conv(x)) - self.shift


def test_what_was_calculated_does_not_go_back() -> None:
    with (
        znnpy.from_torch(Turned(), torch.randn(1, 1, 3, 4, 5), threads=1) as model,
        pytest.raises(ExportError, match="no state dict of the module: the net has shift not as"),
    ):
        model.to_state_dict()
