"""Nets of PyTorch, by both ONNX exporters and by `from_torch`, beside PyTorch and ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("monai")
pytest.importorskip("dynamic_network_architectures")
pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")

from monai.networks.nets import UNETR, SwinUNETR  # noqa: E402
from taken_nets import LEARNED, NETS, SIXES, Odd, Resizing, expected, exported, made  # noqa: E402
from torch import nn  # noqa: E402

import znnpy  # noqa: E402
from znnpy import Hardware, Model, from_torch, load_network  # noqa: E402
from znnpy.errors import ArgumentError, ModelFileError  # noqa: E402
from znnpy.geometry import fit_input  # noqa: E402
from znnpy.interop.pytorch.module import described_module  # noqa: E402
from znnpy.interop.source import read_model  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of other libraries

NEAR = 1e-4
"""Of the range of an output."""


def solid(array: Any) -> Any:
    return array if array.ndim == 5 else array[:, :, None]


def compare(model: Model, image: Any, wanted: list[Any]) -> None:
    values = model.forward(solid(image.numpy()))
    by_name = values if isinstance(values, dict) else {"output": values}
    names = sorted(by_name, key=lambda name: (len(name), name))
    assert len(names) == len(wanted)
    for array in wanted:
        near = [
            name
            for name in names
            if by_name[name].shape == solid(array).shape
            and np.abs(by_name[name] - solid(array)).max() <= NEAR * np.ptp(array)
        ]
        assert near


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", NETS)
def test_from_torch(name: str) -> None:
    net, image = made(name)
    before = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    with from_torch(net, image, threads=2, training=False) as model:
        compare(model, image, expected(net, image))
    after = net.state_dict()
    assert all(torch.equal(after[key], tensor) for key, tensor in before.items())


@pytest.mark.share(23)
@pytest.mark.quick(8)
@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("name", NETS)
def test_onnx(name: str, dynamo: bool, tmp_path: Path) -> None:
    net, image = made(name)
    path = exported(net, image, tmp_path / "net.onnx", dynamo)
    session = runtime.InferenceSession(path)
    wanted = session.run(None, {session.get_inputs()[0].name: image.numpy()})
    found = read_model(path)
    network = load_network(found.config["network"])
    shapes = fit_input(network, solid(image.numpy()).shape[2:]).output_shapes
    loss = found.config["training"]["loss"]
    with Model(network, shapes, threads=2, training=False, loss=loss) as model:
        model.set_parameters(found.members["weights"]())
        compare(model, image, wanted)
        compare(model, image, expected(net, image))


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", LEARNED)
def test_an_update(name: str) -> None:
    """Every parameter after a step of SGD, in float64."""
    net, image = made(name)
    net, image = net.double(), image.double()
    net.eval()
    wanted = np.random.default_rng(3).random(expected(net, image)[0].shape)
    with from_torch(
        net, image, loss="square", hardware=Hardware(precision="float64"),
        optimizer=znnpy.Optimizer("sgd", momentum=0.0),
    ) as model:  # fmt: skip
        ours = model.step(image.numpy(), wanted, learning_rate=0.1)
        net.train()
        loss = torch.nn.functional.mse_loss(net(image), torch.from_numpy(wanted))
        loss.backward()
        torch.optim.SGD(net.parameters(), lr=0.1).step()
        assert ours == pytest.approx(float(loss), rel=1e-6)
        after = described_module(net.eval(), image).parameters
        moved = model.parameters
        assert moved.keys() == after.keys()
        for key, array in after.items():
            np.testing.assert_allclose(moved[key], array, rtol=1e-4, atol=1e-5, err_msg=key)


def test_outputs_of_different_size(tmp_path: Path) -> None:
    """A model takes them, each with its own target; a run does not."""
    torch.manual_seed(0)
    net, image = Odd(around=(1, 1, 1)).eval(), torch.randn(1, 1, 8, 10, 12)
    wanted = expected(net, image)
    with from_torch(net, image, threads=1, training=False) as model:
        compare(model, image, wanted)
    path = exported(net, image, tmp_path / "net.onnx", dynamo=False)
    with pytest.raises(
        ModelFileError,
        match=r"net.onnx: outputs have different sizes, \S+ of 8 x 12 x 14, \S+ of 8 x 10 x 12",
    ):
        read_model(path)


@pytest.mark.parametrize("dynamo", [True, False])
def test_sizes_may_be_open(dynamo: bool, tmp_path: Path) -> None:
    net, image = made("norm first")
    axes: dict[str, Any] = (
        {"dynamic_shapes": ({2: torch.export.Dim("z", min=4), 3: torch.export.Dim("y", min=4)},)}
        if dynamo
        else {"input_names": ["x"], "dynamic_axes": {"x": [0, 2, 3, 4]}}
    )
    try:
        path = exported(net, image, tmp_path / "net.onnx", dynamo, **axes)
    except Exception as error:  # the exporter may not take every net with open sizes
        pytest.skip(str(error)[:100])
    found = read_model(path)
    network = load_network(found.config["network"])
    shapes = fit_input(network, solid(image.numpy()).shape[2:]).output_shapes
    with Model(network, shapes, threads=1, training=False) as model:
        model.set_parameters(found.members["weights"]())
        compare(model, image, expected(net, image))


def test_filters_that_only_copy_are_frozen() -> None:
    net, image = made("AttentionUnet")
    with from_torch(net, image, loss="square") as model:
        copies = [name for name in model.parameters if name.endswith(".spread.conv")]
        before = {name: array.copy() for name, array in model.parameters.items()}
        assert len(copies) == 2
        model.step(
            image.numpy(), np.zeros(expected(net, image)[0].shape, np.float32), learning_rate=1
        )
        moved = [name for name, array in model.parameters.items() if (array != before[name]).any()]
        assert moved
        assert not set(moved) & set(copies)


def test_voxels_whose_middles_are_nearest() -> None:
    torch.manual_seed(0)
    net, image = Resizing("nearest-exact").eval(), torch.randn(1, *SIXES)
    with from_torch(net, image, threads=2, training=False) as model:
        compare(model, image, expected(net, image))


def test_one_voxel_that_becomes_two_beside_two() -> None:
    """A factor of 2, or a voxel more: the feature map beside it says which."""

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv3d(1, 4, 3, padding=1), nn.ConvTranspose3d(4, 4, 3, 2, 1)

        def forward(self, x: Any) -> Any:
            y = self.a(x)
            low = nn.functional.max_pool3d(y, 2)
            return y + nn.functional.interpolate(self.b(low), size=y.shape[2:])

    net, image = Small().eval(), torch.randn(1, 1, 2, 2, 2)
    with from_torch(net, image, training=False) as model:
        compare(model, image, expected(net, image))
        assert {edge.kind for edge in model.network.edges} == {
            "conv",
            "max_pool",
            "conv_transpose",
            "pad",
            "identity",
        }


def test_of_two_feature_maps_of_that_size_the_one_that_leaves_least() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv3d(1, 2, 2), nn.Conv3d(1, 2, 1)

        def forward(self, x: Any) -> Any:
            inner, low = x[..., 4:-4, 4:-4, 4:-4], nn.functional.avg_pool3d(x, 2)
            near = nn.functional.interpolate(self.a(low), size=low.shape[2:], mode="trilinear")
            return near + low, self.b(inner)

    net, image = Two().eval(), torch.randn(1, 1, 16, 16, 16)
    with from_torch(net, image, training=False) as model:
        compare(model, image, expected(net, image))
        (edge,) = (edge for edge in model.network.edges if edge.kind == "resize")
        assert (edge.factor, edge.divisor, edge.more) == ((1, 1, 1), (1, 1, 1), (1, 1, 1))


class Wrong(nn.Module):
    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.conv = what, nn.Conv3d(2, 2, 3, padding=1)

    def forward(self, x: Any) -> Any:
        x = self.conv(x)
        match self.what:
            case "shared":
                return self.conv(x)
            case "permute":
                return x.permute(0, 1, 4, 3, 2)
            case "matmul":
                return x @ x.transpose(3, 4)
            case "corners":
                return nn.functional.interpolate(
                    x, size=(12, 8, 8), mode="trilinear", align_corners=True
                )
            case "part of a voxel":
                return nn.functional.interpolate(x, scale_factor=0.7)
            case "channel norm":
                return nn.functional.layer_norm(x, x.shape[-1:])
            case "dilated":
                return nn.functional.max_pool3d(x, 2, dilation=2)
            case "constant":
                return x + torch.arange(8.0)
            case "reshape":
                return nn.functional.max_pool3d(x.reshape(1, 2, 4, 16, 8), 2)
            case "blocks":
                x = x.reshape(1, 1, 2, 8, 8, 8).permute(0, 1, 3, 2, 4, 5)
                return x.reshape(1, 1, 8, 16, 8)
            case "numbers":
                return x.mean((2, 3, 4))
        return nn.functional.mish(x)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("shared", "conv.weight is used twice: shared parameters are not supported"),
        ("permute", "output output: of shape"),
        ("matmul", "transpose transpose: is not supported"),
        ("corners", "its voxels lie 2/3 x 1 x 1 input voxels apart"),
        (
            "part of a voxel",
            "argument scale_factors: 0.7 times 8 voxels are no whole number of voxels",
        ),
        ("channel norm", r"argument normalized_shape: \[8\] is not that of channels"),
        ("dilated", r"argument dilation: \[2, 2, 2\] is not supported"),
        ("constant", "arange arange: of constants is not supported"),
        ("reshape", r"max_pool3d.*reads a tensor that was reshaped to \(1, 2, 4, 16, 8\)"),
        ("blocks", "reshapes a tensor that was transposed"),
        ("numbers", r"output output: of shape \(1, 2\) is not supported"),
        ("mish", "mish mish: is not supported"),
    ],
)
def test_what_is_not_supported_is_named(what: str, words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        from_torch(Wrong(what), torch.zeros(1, 2, 8, 8, 8))


class Blank(nn.Module):
    """Whatever it has, it cannot be exported: it is refused before."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        self.inner = nn.ModuleDict({"attn": nn.ModuleDict(parts)})

    def forward(self, x: Any) -> Any:
        raise AssertionError("was exported")


@pytest.mark.parametrize(
    ("net", "layer"),
    [
        (lambda: SwinUNETR(1, 2, feature_size=12), r"swinViT\S+attn \(WindowAttention\)"),
        (lambda: UNETR(1, 2, (16,) * 3, feature_size=4, hidden_size=12, mlp_dim=12, num_heads=2),
         r"vit\S+attn \(SABlock\)"),
        (lambda: Blank(heads=nn.MultiheadAttention(4, 2)), r"inner.attn.heads \(MultiheadAttention\)"),
        (lambda: Blank(**{name: nn.Linear(2, 2) for name in ("to_q", "to_k", "to_v")}), r"inner.attn \(ModuleDict\)"),
    ],
)  # fmt: skip
def test_attention_is_refused_before_anything_is_exported(net: Any, layer: str) -> None:
    module = net()
    module.forward = Blank().forward
    with pytest.raises(
        ModelFileError, match=rf"layer {layer} is attention, which is not supported"
    ):
        from_torch(module, torch.zeros(1, 1, 16, 16, 16))


def test_convolutions_called_as_those_of_attention_are_no_attention() -> None:
    with pytest.raises(ModelFileError, match="was exported"):
        from_torch(Blank(qkv=nn.Conv3d(1, 1, 1), value=nn.Linear(1, 1)), torch.zeros(1, 1, 4, 4, 4))


def test_a_module_in_training_is_taken_as_it_predicts() -> None:
    net, image = made("UNet, relu")
    wanted = expected(net, image)
    net.train()
    with from_torch(net, image, training=False) as model:
        compare(model, image, wanted)
    assert all(part.training for part in net.modules())


def test_what_is_no_module_or_example() -> None:
    with pytest.raises(ArgumentError, match=r"a torch.nn.Module is needed; found str"):
        from_torch("net", torch.zeros(1, 1, 4, 4, 4))
    with pytest.raises(ArgumentError, match="the example must be one tensor"):
        from_torch(Wrong(""), torch.zeros(1, 4, 4))
    with pytest.raises(ModelFileError, match=r"torch.export fails on Wrong"):
        from_torch(Wrong(""), torch.zeros(1, 5, 4, 4, 4))
