"""A run as the predictor of MONAI's SlidingWindowInferer, beside the same net by PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
inferers = pytest.importorskip("monai.inferers")
meta = pytest.importorskip("monai.data.meta_tensor")

from exported_runs import run_of  # noqa: E402

from znnpy.backends import PatchPredictor  # noqa: E402

LAYERS = [
    {"conv": {"channels": 3, "size": 3, "padding": "same", "function": "relu"}},
    {"conv": {"channels": 2, "size": [1, 3, 3], "padding": "same"}},
]


def both(folder: Path, flat: bool = False) -> tuple[PatchPredictor, Any]:
    layers = [{"conv": {**it["conv"], "size": [1, 3, 3]}} if flat else it for it in LAYERS]
    weights = run_of(folder / "run", {"layers": layers}).saved.weights.parameters
    filters = [array for array in weights.values() if array.ndim == 5]
    biases = [array for array in weights.values() if array.ndim == 1]
    kind = torch.nn.Conv2d if flat else torch.nn.Conv3d
    parts: list[Any] = []
    for taps, bias in zip(filters, biases, strict=True):
        size = taps.shape[3:] if flat else taps.shape[2:]
        conv = kind(taps.shape[1], taps.shape[0], size, padding=tuple(n // 2 for n in size))
        with torch.no_grad():
            conv.weight.copy_(torch.from_numpy(taps[:, :, 0] if flat else taps))
            conv.bias.copy_(torch.from_numpy(bias))
        parts += [conv, torch.nn.ReLU()]
    return PatchPredictor(folder / "run", threads=1), torch.nn.Sequential(*parts[:-1])


@pytest.mark.parametrize("mode", ["constant", "gaussian"])
@pytest.mark.parametrize("batch", [1, 3])
def test_sliding_windows_are_those_of_the_module(mode: str, batch: int, tmp_path: Path) -> None:
    net, module = both(tmp_path)
    inferer = inferers.SlidingWindowInferer((6, 10, 8), sw_batch_size=batch, overlap=0.4, mode=mode)
    image = torch.randn((2, 1, 13, 9, 21), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = inferer(image, module)
    with net:
        found = inferer(image, net)
        # As MONAI's own transforms hand images over.
        again = inferer(meta.MetaTensor(image), net)
    assert wanted.std() > 0.1
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(again.as_tensor(), wanted, atol=1e-5, rtol=1e-4)


def test_flat_windows(tmp_path: Path) -> None:
    net, module = both(tmp_path, flat=True)
    inferer = inferers.SlidingWindowInferer((10, 8), overlap=0.25)
    image = torch.randn((1, 1, 23, 17), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), net:
        torch.testing.assert_close(
            inferer(image, net), inferer(image, module), atol=1e-5, rtol=1e-4
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.uint8])
def test_tensors_of_other_types(dtype: Any, tmp_path: Path) -> None:
    net, module = both(tmp_path)
    given = (torch.rand((1, 1, 4, 6, 5)) * 9).to(dtype)
    with torch.no_grad(), net:
        wanted, found = module(given.to(torch.float32)), net(given)
    assert found.dtype == (dtype if dtype.is_floating_point else torch.float32)
    np.testing.assert_allclose(
        found.to(torch.float32), wanted, atol=0.05 if dtype == torch.bfloat16 else 1e-4
    )
