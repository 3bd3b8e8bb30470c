"""Prediction in windows beside MONAI's sliding_window_inference, with one network for both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
inferers = pytest.importorskip("monai.inferers")
importance = pytest.importorskip("monai.data.utils")

from znnpy.config import config_from  # noqa: E402
from znnpy.data.scene import Scene  # noqa: E402
from znnpy.data.values.normalization import normalisation  # noqa: E402
from znnpy.data.volume import ArrayVolume  # noqa: E402
from znnpy.geometry import Geometry, fit  # noqa: E402
from znnpy.infer.blocks import Region, whole_field  # noqa: E402
from znnpy.infer.config_model import Weights, prediction_of  # noqa: E402
from znnpy.infer.predict import VolumePrediction  # noqa: E402
from znnpy.infer.sliding_window import Windows  # noqa: E402
from znnpy.network import (  # noqa: E402
    Network,
    build_network,
    initial_parameters,
    load_network,
)

WINDOW = (8, 12, 10)


class Padded:
    """A padded network by PyTorch: values depend on where a window ends, and on all of it."""

    def __init__(self, images: int = 3) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv3d(1, 4, 3, padding=1),
            torch.nn.InstanceNorm3d(4),
            torch.nn.LeakyReLU(),
            torch.nn.Conv3d(4, images, (1, 3, 5), padding=(0, 1, 2)),
        )
        self.network: Network = load_network(
            {"layers": [{"conv": {"channels": images, "size": 1}}]}
        )
        self.geometry: Geometry = fit(self.network, WINDOW)
        self._room = np.zeros((1, 1, *WINDOW), np.float32)

    def __call__(self, x: Any) -> Any:
        with torch.no_grad():
            return self.layers(x)

    def staged(self) -> Mapping[str, np.ndarray]:
        return {"input": self._room}

    def run(self) -> Mapping[str, np.ndarray]:
        return {"output": self(torch.from_numpy(self._room)).numpy()}


@pytest.mark.parametrize("overlap", [(0.5, 0.5, 0.5), (0.25, 0.6, 0.0)])
@pytest.mark.parametrize("blend", ["gaussian", "constant"])
@pytest.mark.parametrize("extent", [(19, 30, 25), (8, 12, 10), (5, 30, 7), (3, 4, 5)])
def test_values_are_monais(extent: Any, blend: Any, overlap: Any) -> None:
    raw = np.random.default_rng(0).integers(0, 255, (1, *extent)).astype(np.uint8)
    volume, model = ArrayVolume(raw, "raw"), Padded()
    norm = normalisation(volume)
    field = whole_field(model.network, {"input": volume}, {"input": (0, 0, 0)}, False)
    prediction = VolumePrediction(
        model,
        Scene({"input": volume}, {}),
        field,
        {"input": norm},
        grid=Windows(WINDOW, overlap, blend, extent),
        mirror=False,
    )
    given = torch.from_numpy(norm.apply(raw)[None].astype(np.float32))
    wanted = inferers.sliding_window_inference(
        given, WINDOW, 1, model, overlap=overlap, mode=blend, sigma_scale=0.125
    )[0].numpy()
    assert wanted.std() > 0.1
    found = prediction.whole()["output"]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    middle = Region(tuple(n // 3 for n in extent), tuple(n // 3 + 1 for n in extent))
    z, y, x = middle.slices()
    assert np.array_equal(prediction.region(middle)["output"], found[:, z, y, x])


LAYERS = [
    {"conv": {"channels": 4, "size": 3, "padding": "same", "norm": "instance", "function": "relu"}},
    {"max_pool": 2},
    {"conv": {"channels": 5, "size": 3, "padding": 1, "border": "replicate"}},
    {"conv_transpose": {"channels": 4, "size": 2, "stride": 2, "function": "relu"}},
    {"conv": {"channels": 3, "size": [1, 3, 5], "padding": "same"}},
]


def by_torch(parameters: Mapping[str, np.ndarray]) -> Any:
    """The same layers, with the same weights."""
    made = torch.nn.Sequential(
        torch.nn.Conv3d(1, 4, 3, padding=1, bias=False),
        torch.nn.InstanceNorm3d(4),
        torch.nn.ReLU(),
        torch.nn.MaxPool3d(2),
        torch.nn.Conv3d(4, 5, 3, padding=1, padding_mode="replicate"),
        torch.nn.ConvTranspose3d(5, 4, 2, 2),
        torch.nn.ReLU(),
        torch.nn.Conv3d(4, 3, (1, 3, 5), padding=(0, 1, 2)),
    )
    filters = [made[0], made[4], made[5], made[7]]
    names = ["conv1", "conv2", "conv_transpose1", "conv3"]
    with torch.no_grad():
        for layer, name, node in zip(
            filters, names, [None, "layer3", "layer4", "output"], strict=True
        ):
            values = torch.from_numpy(parameters[name])
            layer.weight[:] = values.transpose(0, 1) if name == "conv_transpose1" else values
            if node is not None:
                layer.bias[:] = torch.from_numpy(parameters[node])
    return made


@pytest.mark.parametrize("threads", [1, 2])
def test_a_network_of_the_engine(threads: int) -> None:
    config = config_from(
        {
            "network": {"layers": LAYERS},
            "training": {"output_shape": list(WINDOW)},
            "run": {"threads": threads},
        }
    )
    network = build_network(config.network)
    rng = np.random.default_rng(1)
    parameters = {
        name: array + rng.normal(0, 0.1, array.shape).astype(np.float32) * (array.ndim == 1)
        for name, array in initial_parameters(network, 3).items()
        if not name.endswith((".scale", ".shift"))
    } | {"layer1.scale": np.ones(4, np.float32), "layer1.shift": np.zeros(4, np.float32)}
    raw = rng.integers(0, 255, (1, 19, 30, 25)).astype(np.uint8)
    volume = ArrayVolume(raw, "raw")
    weights = Weights(config, network, None, parameters)
    with prediction_of(weights, Scene({"input": volume}, {})) as prediction:
        found = prediction.whole()["output"]
    given = torch.from_numpy(normalisation(volume).apply(raw)[None].astype(np.float32))
    with torch.no_grad():
        wanted = inferers.sliding_window_inference(
            given, WINDOW, 1, by_torch(parameters).eval(), overlap=0.5, mode="gaussian"
        )[0].numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("size", [(8, 12, 10), (64, 64, 64), (5, 1, 7), (18, 160, 160)])
def test_weights_are_monais(size: Any) -> None:
    wanted = importance.compute_importance_map(size, mode="gaussian").numpy()
    found = Windows(size, (0.5, 0.5, 0.5), "gaussian", (999, 999, 999)).weight
    np.testing.assert_allclose(found, wanted, rtol=2e-6)
