"""The registry of classes whose networks can be built from keyword arguments and a state dict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from znnpy.errors import ModelFileError
from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.classes.state import State
from znnpy.interop.operators.described import Described, described
from znnpy.registry import Registry, resolved


@dataclass(frozen=True, kw_only=True)
class NetClass:
    """One class: `name` is PACKAGE.CLASS. `usual`: its arguments, and what they are where they are not given.

    `build(keywords, state)` returns a sketch and its outputs, numerically what the class computes in `eval()`; it may
    be named as "module:name". `title`: what people call it.
    """

    name: str
    title: str
    usual: Mapping[str, Any]
    build: Any


_ROOM = "znnpy.interop.classes"
_MONAI = {"spatial_dims": 3, "in_channels": None, "out_channels": None}
_SEGRES = {**_MONAI, "in_channels": 1, "out_channels": 2}
_LEAKY = ["leakyrelu", {"inplace": True, "negative_slope": 0.01}]
_3DUNET = {
    "in_channels": None, "out_channels": None, "final_sigmoid": True, "f_maps": 64, "layer_order": "gcr",
    "num_groups": 8, "num_levels": 4, "is_segmentation": True, "conv_padding": 1, "conv_upscale": 2,
    "upsample": "default", "dropout_prob": 0.1, "conv_kernel_size": None, "pool_kernel_size": None, "testing": None,
}  # fmt: skip
_RESIDUAL = {**_3DUNET, "num_levels": 5}
_TORCH_EM = {
    "in_channels": None, "out_channels": None, "initial_features": 32, "gain": 2, "final_activation": None,
    "return_side_outputs": False, "postprocessing": None, "check_shape": True, "norm": "InstanceNorm",
    "kernel_size": 3, "padding": 1, "conv_block_impl": None, "pooler_impl": None, "sampler_impl": None,
}  # fmt: skip

CLASSES = Registry[NetClass](
    "class of networks",
    (
        NetClass(
            name="monai.UNet",
            title="MONAI UNet",
            usual={
                **_MONAI, "channels": None, "strides": None, "kernel_size": 3, "up_kernel_size": 3, "num_res_units": 0,
                "act": "PRELU", "norm": "INSTANCE", "dropout": 0.0, "bias": True, "adn_ordering": "NDA",
                "dimensions": None,
            },
            build=f"{_ROOM}.monai_unet:unet",
        ),
        NetClass(
            name="monai.AttentionUnet",
            title="MONAI AttentionUnet",
            usual={
                **_MONAI, "channels": None, "strides": None, "kernel_size": 3, "up_kernel_size": 3, "dropout": 0.0,
            },
            build=f"{_ROOM}.monai_unet:attention_unet",
        ),
        NetClass(
            name="monai.BasicUNet",
            title="MONAI BasicUNet",
            usual={
                **_SEGRES, "features": [32, 32, 64, 128, 256, 32], "act": ["LeakyReLU", {"negative_slope": 0.1}],
                "norm": ["instance", {"affine": True}], "bias": True, "dropout": 0.0, "upsample": "deconv",
                "dimensions": None,
            },
            build=f"{_ROOM}.basic_unet:basic_unet",
        ),
        NetClass(
            name="monai.DynUNet",
            title="MONAI DynUNet",
            usual={
                **_MONAI, "kernel_size": None, "strides": None, "upsample_kernel_size": None, "filters": None,
                "dropout": None, "norm_name": ["INSTANCE", {"affine": True}], "act_name": _LEAKY,
                "deep_supervision": False, "deep_supr_num": 1, "res_block": False, "trans_bias": False,
            },
            build=f"{_ROOM}.dynunet:dynunet",
        ),
        NetClass(
            name="monai.SegResNet",
            title="MONAI SegResNet",
            usual={
                **_SEGRES, "init_filters": 8, "dropout_prob": None, "act": "RELU", "norm": ["GROUP", {"num_groups": 8}],
                "norm_name": "", "num_groups": 8, "use_conv_final": True, "blocks_down": [1, 2, 2, 4],
                "blocks_up": [1, 1, 1], "upsample_mode": "nontrainable",
            },
            build=f"{_ROOM}.segresnet:segresnet",
        ),
        NetClass(
            name="monai.SegResNetDS",
            title="MONAI SegResNetDS",
            usual={
                **_SEGRES, "init_filters": 32, "act": "relu", "norm": "batch", "blocks_down": [1, 2, 2, 4],
                "blocks_up": None, "dsdepth": 1, "preprocess": None, "upsample_mode": "deconv", "resolution": None,
            },
            build=f"{_ROOM}.segresnet_ds:segresnet_ds",
        ),
        NetClass(
            name="monai.VNet",
            title="MONAI VNet",
            usual={
                **_SEGRES, "out_channels": 1, "act": ["elu", {"inplace": True}], "dropout_prob": 0.5,
                "dropout_prob_down": 0.5, "dropout_prob_up": [0.5, 0.5], "dropout_dim": 3, "bias": False,
            },
            build=f"{_ROOM}.vnet:vnet",
        ),
        NetClass(
            name="pytorch3dunet.UNet3D", title="pytorch-3dunet UNet3D", usual=_3DUNET,
            build=f"{_ROOM}.pytorch3dunet:unet3d",
        ),
        NetClass(
            name="pytorch3dunet.UNet2D", title="pytorch-3dunet UNet2D", usual=_3DUNET,
            build=f"{_ROOM}.pytorch3dunet:unet2d",
        ),
        NetClass(
            name="pytorch3dunet.ResidualUNet3D", title="pytorch-3dunet ResidualUNet3D", usual=_RESIDUAL,
            build=f"{_ROOM}.pytorch3dunet:residual_unet3d",
        ),
        NetClass(
            name="pytorch3dunet.ResidualUNet2D", title="pytorch-3dunet ResidualUNet2D", usual=_RESIDUAL,
            build=f"{_ROOM}.pytorch3dunet:residual_unet2d",
        ),
        NetClass(
            name="pytorch3dunet.ResidualUNetSE3D", title="pytorch-3dunet ResidualUNetSE3D", usual=_RESIDUAL,
            build=f"{_ROOM}.pytorch3dunet:excited_unet3d",
        ),
        NetClass(
            name="torch_em.UNet3d", title="torch-em UNet3d", usual={**_TORCH_EM, "depth": 4},
            build=f"{_ROOM}.torch_em:unet3d",
        ),
        NetClass(
            name="torch_em.UNet2d", title="torch-em UNet2d", usual={**_TORCH_EM, "depth": 4},
            build=f"{_ROOM}.torch_em:unet2d",
        ),
        NetClass(
            name="torch_em.AnisotropicUNet", title="torch-em AnisotropicUNet",
            usual={**_TORCH_EM, "scale_factors": None, "anisotropic_kernel": False},
            build=f"{_ROOM}.torch_em:anisotropic_unet",
        ),
        NetClass(
            name="emvision.RSUNet", title="emvision RSUNet", usual={"act": "ReLU", "group": 0},
            build=f"{_ROOM}.rsunet:rsunet",
        ),
        NetClass(
            name="funlib.UNet", title="funlib UNet (LSD)",
            usual={
                "in_channels": None, "num_fmaps": None, "fmap_inc_factor": None, "downsample_factors": None,
                "kernel_size_down": None, "kernel_size_up": None, "activation": "ReLU", "fov": None, "voxel_size": None,
                "num_fmaps_out": None, "num_heads": 1, "constant_upsample": False, "padding": "valid", "heads": {},
            },
            build=f"{_ROOM}.funlib:unet",
        ),
        NetClass(
            name="mednext.MedNeXt", title="MedNeXt v1",
            usual={
                "in_channels": None, "n_channels": None, "n_classes": None, "exp_r": 4, "kernel_size": 7,
                "enc_kernel_size": None, "dec_kernel_size": None, "deep_supervision": False, "do_res": False,
                "do_res_up_down": False, "checkpoint_style": None, "block_counts": [2] * 9, "norm_type": "group",
                "dim": "3d", "grn": False,
            },
            build=f"{_ROOM}.mednext:mednext",
        ),
    ),
)  # fmt: skip

_PACKAGES = {
    "plantseg": "pytorch3dunet", "panseg": "pytorch3dunet", "deepem": "emvision", "nnunet_mednext": "mednext",
}  # fmt: skip
"""Packages that have classes of others, or another name."""
_SAME = {
    "Unet": "UNet", "unet": "UNet", "BasicUnet": "BasicUNet", "Basicunet": "BasicUNet", "DynUnet": "DynUNet",
    "AttentionUNet": "AttentionUnet", "rsunet_act": "RSUNet", "rsunet_gn": "RSUNet", "rsunet_act_gn": "RSUNet",
}  # fmt: skip


def class_of(name: str, where: str, package: str = "") -> NetClass:
    """Return the entry of a class by its dotted name; `package`: whose it is where the name has no dots.

    Raises ModelFileError, which lists the classes that are known.
    """
    first, _, rest = name.partition(".")
    last = (rest or first).rpartition(".")[2]
    owner = _PACKAGES.get(first, first) if rest else package
    found = CLASSES.get(f"{owner}.{_SAME.get(last, last)}")
    if found is None:
        raise ModelFileError(
            f"{where}: networks of class {name[:80]} are not supported; known are {', '.join(CLASSES)}"
        )
    return found


def taken_over(found: NetClass, arguments: Mapping[str, Any], state: State) -> Described:
    """Return the net of a class, its arguments and its state as nodes, edges and parameters.

    Raises ModelFileError for arguments, layers and tensors that are not supported or do not fit each other.
    """
    keywords = Keywords.of(arguments, found.usual, f"{state.where}: {found.name}")
    sketch, outputs = resolved(found.build)(keywords, state)
    return described(sketch, outputs)
