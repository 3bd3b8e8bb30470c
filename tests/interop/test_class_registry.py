"""Networks by their class: what the arguments and tensors say, and what is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from class_states import SHAPES, VALUES, drawn, stored

from znnpy.errors import ModelFileError
from znnpy.interop.classes.origin import network_of
from znnpy.interop.classes.registry import CLASSES, class_of
from znnpy.weights.pickled import Name

UNET3D = CLASSES["pytorch3dunet.UNet3D"]


def test_a_net_has_the_names_of_its_tensors() -> None:
    tensors = drawn(SHAPES)
    found = network_of(UNET3D, VALUES, {f"module.{k}": v for k, v in tensors.items()}, "a.pt")
    edge = "encoders.0.basic_module.SingleConv1.conv"
    assert np.array_equal(found.parameters[edge], tensors[f"{edge}.weight"].array())
    assert [node.name for node in found.network.outputs] == ["output"]
    assert found.network.outputs[0].function == "logistic"
    assert found.shapes["output"] == (192, 192, 192)


def test_weights_are_in_memory_once() -> None:
    tensors = drawn(SHAPES)
    found = network_of(UNET3D, VALUES, tensors, "a.pt")
    edge = "encoders.0.basic_module.SingleConv1.conv"
    assert np.shares_memory(found.parameters[edge], tensors[f"{edge}.weight"].array())


@pytest.mark.parametrize(
    ("name", "package", "wanted"),
    [
        ("monai.networks.nets.unet.UNet", "", "monai.UNet"),
        ("UNet", "monai", "monai.UNet"),
        ("plantseg.training.model.UNet3D", "", "pytorch3dunet.UNet3D"),
        ("torch_em.model.unet.AnisotropicUNet", "", "torch_em.AnisotropicUNet"),
        ("deepem.models.rsunet_act", "", "emvision.RSUNet"),
        ("monai.networks.nets.DynUnet", "", "monai.DynUNet"),
    ],
)
def test_names_of_classes(name: str, package: str, wanted: str) -> None:
    assert class_of(name, "here", package).name == wanted


@pytest.mark.parametrize("name", ["monai.networks.nets.SwinUNETR", "UNet3D", "os.system", ""])
def test_other_classes_are_refused(name: str) -> None:
    with pytest.raises(ModelFileError, match=r"a.json: networks of class .* known are monai.UNet"):
        class_of(name, "a.json")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"f_map": 3}, "UNet3D: f_map: 3 is not supported; known are in_channels"),
        ({"f_maps": [2]}, "f_maps must hold at least two numbers"),
        ({"f_maps": [2, -4]}, "f_maps must be whole numbers above 0"),
        ({"in_channels": None}, "in_channels must be whole numbers above 0; found nothing"),
        ({"in_channels": True}, "in_channels must be whole numbers above 0; found true"),
        ({"in_channels": 3}, r"SingleConv1.conv.weight has shape \(1, 1, 3, 3, 3\), and \(3, 3, 3, 3, 3\) by"),
        ({"layer_order": "rr"}, "layer_order must hold one c"),
        ({"layer_order": "gcr", "num_groups": 1}, "SingleConv1.groupnorm.weight is missing, which the class has"),
        ({"conv_padding": 0}, "conv_padding must be 1"),
        ({"upsample": "area"}, "upsample must be default, deconv"),
        ({"f_maps": Name("os", "system")}, "a value of type Name is no argument"),
        ({"f_maps": 10**9}, "f_maps must be whole numbers above 0"),
    ],
)  # fmt: skip
def test_wrong_arguments(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        network_of(UNET3D, VALUES | changed, drawn(SHAPES), "a.pt")


def test_wrong_tensors() -> None:
    tensors: dict[str, Any] = drawn(SHAPES)
    with pytest.raises(ModelFileError, match=r"a.pt: extra.weight: the class has none, with these"):
        network_of(UNET3D, VALUES, {**tensors, "extra.weight": stored(np.zeros(3))}, "a.pt")
    with pytest.raises(ModelFileError, match="has values that are not finite"):
        network_of(UNET3D, VALUES, {**tensors, "final_conv.bias": stored([np.nan, 0])}, "a.pt")
    with pytest.raises(ModelFileError, match=r"final_conv.bias is no tensor"):
        network_of(UNET3D, VALUES, {**tensors, "final_conv.bias": 3}, "a.pt")


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("monai.UNet", {"spatial_dims": 1, "channels": [2, 4], "strides": [2]}, "spatial_dims must be 2 or 3"),
        ("monai.UNet", {"channels": [2, 4], "strides": []}, "strides must hold 1 strides"),
        ("monai.UNet", {"channels": [2, 4], "strides": [2], "norm": "layer"}, "norm must be INSTANCE, BATCH or GROUP"),
        ("monai.UNet", {"channels": [2, 4], "strides": [2], "act": "MISH"}, "act must be one of RELU"),
        ("monai.UNet", {"channels": [2, 4], "strides": [2], "adn_ordering": "NN"}, "adn_ordering must hold"),
        ("monai.UNet", {"channels": [2, 4], "strides": [[2, 2]]}, "a stride .2, 2. of a net of 3 dimensions"),
        ("monai.UNet", {"channels": [2, 4], "strides": [4096]}, None),
        ("monai.DynUNet", {"kernel_size": [3], "strides": [1]}, "strides must hold three"),
        ("monai.SegResNet", {"upsample_mode": "bicubic", "blocks_down": [1, 1], "blocks_up": [1]}, None),
        ("monai.SegResNetDS", {"preprocess": "x"}, "preprocess is not supported"),
        ("monai.SegResNetDS", {"resolution": [1, 0, 1]}, "resolution must hold 3 sizes above 0"),
        ("mednext.MedNeXt", {"norm_type": "batch"}, "norm_type must be group or layer where dim is 3d"),
        ("mednext.MedNeXt", {"norm_type": "layer", "dim": "2d"}, "norm_type must be group where dim is 2d"),
        ("mednext.MedNeXt", {"block_counts": [1, 2]}, "block_counts must hold 9 numbers"),
        ("funlib.UNet", {"downsample_factors": [2, 2]}, "downsample_factors must hold lists"),
        ("torch_em.UNet3d", {"conv_block_impl": "mine"}, "conv_block_impl is not supported"),
        ("torch_em.UNet3d", {"padding": 0}, "padding must be 1, which keeps the size"),
        ("torch_em.UNet3d", {"depth": 10**6}, "strides whose product is 8192"),
        ("pytorch3dunet.UNet3D", {"num_levels": 10**6}, "num_levels must be at most 12"),
        ("emvision.RSUNet", {}, "iconv.pre.conv.weight is missing"),
    ],
)  # fmt: skip
def test_what_other_classes_do_not_take(
    name: str, given: dict[str, Any], words: str | None
) -> None:
    entry = CLASSES[name]
    usual = {"in_channels": 1, "out_channels": 2, "n_channels": 4, "n_classes": 2}
    with pytest.raises(ModelFileError, match=words):
        network_of(entry, {k: v for k, v in usual.items() if k in entry.usual} | given, {}, "a.pt")
