"""Packages of bioimage.io around PyTorch's nets, its outputs as test tensors: taken over, and predicted by command."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("monai")
pytest.importorskip("onnxscript")

from bioimage_packages import state, written, zipped  # noqa: E402
from called import status_of  # noqa: E402
from class_nets import KNOWN  # noqa: E402
from taken_nets import exported  # noqa: E402

from znnpy.data.opening import open_volume  # noqa: E402
from znnpy.interop.source import read_model  # noqa: E402

BEFORE = [
    {"name": "clip", "kwargs": {"min": 60, "max": 150}},
    {"name": "scale_linear", "kwargs": {"gain": 0.05, "offset": -5}},
]
CASES = {
    "0.5, state dict": ("torch-em", True, "torch_em.model.unet", "bczyx", True),
    "0.4, code beside it": ("ResidualUNet3D", False, "", "bczyx", False),
    "0.5, ONNX": ("norm first", True, "", "bczyx", True),
    "0.4, flat, ONNX": ("flat", False, "", "bcyx", True),
}  # fmt: skip


class Flat(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.Conv2d(4, 2, 1)

    def forward(self, x: Any) -> Any:
        return self.two(torch.relu(self.one(x)))


def net_of(name: str) -> tuple[Any, tuple[int, ...], Any]:
    """A net, the shape of its image, and how a package names it."""
    if name in KNOWN:
        known = KNOWN[name]
        return known.module(), known.shape, known
    torch.manual_seed(0)
    if name == "flat":
        return Flat().eval(), (1, 16, 24), None
    from taken_nets import NETS

    make, shape = NETS[name]
    return make().eval(), shape, None


@pytest.mark.quick(2)
@pytest.mark.parametrize("case", CASES)
def test_a_package_predicts_what_its_net_does(case: str, tmp_path: Path) -> None:
    name, new, package, letters, fixed = CASES[case]
    net, shape, known = net_of(name)
    image = np.random.default_rng(1).normal(100, 25, (1, *shape)).astype(np.float32)
    with torch.no_grad():
        logits = net(torch.from_numpy(image.clip(60, 150) * 0.05 - 5))
    after = [{"name": "softmax", "kwargs": {"axis": "channel"}}] if name == "flat" else []
    wanted = (torch.softmax(logits, 1) if after else logits).numpy()
    folder = tmp_path / "p"
    folder.mkdir()
    if known is not None:
        torch.save(net.state_dict(), folder / "net.pt")
        names = known.name.split(".")
        weights = state("net.pt", names[1], dict(known.written), new=new, package=package)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported(net, torch.from_numpy(image), folder / "net.onnx", dynamo=False)
        weights = {"onnx": {"source": "net.onnx", "opset_version": 17}}
    path = zipped(
        written(folder, weights, image, [wanted], new=new, letters=letters, fixed=fixed, before=BEFORE, after=after)
    )  # fmt: skip
    assert "its test tensors are met to" in read_model(path).notes[0]
    channel = image[0] if image.ndim == 5 else image[:, 0]
    np.save(
        tmp_path / "image.npy", channel if len(channel) > 1 else channel.reshape(channel.shape[-3:])
    )
    made = tmp_path / "made.h5"
    line = ["predict", path, "--input", tmp_path / "image.npy", "--output", made, "--threads", 1]
    size = ",".join(str(n) for n in ((1, *wanted.shape[2:])[-3:]))
    assert status_of(*line, "--patch", size, "--borders", "mirror") == 0
    with open_volume(str(made)) as volume:
        found = volume.read_all()
    np.testing.assert_allclose(
        found.reshape(wanted[0].shape), wanted[0], atol=1e-4 * np.ptp(wanted)
    )


def test_another_net_is_told(tmp_path: Path) -> None:
    known = KNOWN["UNet3D"]
    net = known.module()
    image = known.image().numpy()
    torch.save(net.state_dict(), tmp_path / "net.pt")
    with torch.no_grad():
        wanted = net(torch.from_numpy(image)).numpy()
    arguments = {**known.written, "layer_order": "gce"}
    package = written(tmp_path, state("net.pt", "UNet3D", arguments), image, [wanted])
    with pytest.raises(Exception, match="of its range away from the test tensor"):
        read_model(package)
