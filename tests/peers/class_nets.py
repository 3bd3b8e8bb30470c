"""Nets of classes that are known by name: the class, its arguments, how it is made, and the size of its input."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from carried import shuffled, tamed
from class_modules import Lsd, MedNeXt, RSUNet, TorchEm, UNet3D
from monai.networks import nets
from torch import nn

from znnpy.interop.classes.origin import network_of
from znnpy.interop.classes.registry import class_of
from znnpy.interop.operators.described import Described
from znnpy.weights.torch_file import read_torch

CUBE = (16, 16, 16)


@dataclass(frozen=True)
class Known:
    """A class by its name here, what makes the real one, its arguments, channels and size of an input."""

    name: str
    make: Callable[..., nn.Module]
    arguments: Mapping[str, Any]
    shape: tuple[int, ...]
    written: Mapping[str, Any] = field(default_factory=dict)
    """Arguments as the config of a model says them, where those differ."""

    def module(self) -> nn.Module:
        """The class with values that no net starts with."""
        torch.manual_seed(0)
        net = self.make(**self.arguments)
        shuffled(net, 1)
        tamed(net)
        return net.eval()

    def image(self) -> torch.Tensor:
        """An input."""
        rng = np.random.default_rng(2)
        return torch.from_numpy(rng.standard_normal((1, *self.shape))).float()

    def taken(self, net: nn.Module, folder: Path) -> Described:
        """The class as it is built here, of a file that torch.save writes."""
        path = folder / "weights.pt"
        torch.save(net.state_dict(), path)
        arguments = self.written or self.arguments
        return network_of(class_of(self.name, "test"), arguments, read_torch(path), path.name)


_LEVELS = {"channels": (4, 8, 16), "strides": (2, 2)}
_SMALL = {"spatial_dims": 3, "in_channels": 1, "out_channels": 2}
_DYNAMIC = {
    **_SMALL, "kernel_size": [3, [1, 3, 3], 3], "strides": [1, [1, 2, 2], 2], "upsample_kernel_size": [[1, 2, 2], 2],
    "filters": [4, 8, 16],
}  # fmt: skip
_SEGMENTING = {**_SMALL, "init_filters": 8, "blocks_down": (1, 2, 1), "blocks_up": (1, 1)}
_SCALED = {**_SMALL, "init_filters": 8, "blocks_down": (1, 1, 2)}

MONAI: dict[str, Known] = {
    "UNet": Known("monai.UNet", nets.UNet, {**_SMALL, **_LEVELS, "num_res_units": 2}, (1, *CUBE)),
    "UNet, one unit, no cubes": Known(
        "monai.UNet", nets.UNet,
        {**_SMALL, "channels": (4, 8, 12), "strides": ((1, 2, 2), 2), "kernel_size": (1, 3, 3), "num_res_units": 1,
         "up_kernel_size": 5, "act": "RELU", "norm": ("group", {"num_groups": 2}), "bias": False, "dropout": 0.2},
        (1, 8, 16, 12),
    ),
    "UNet, plain": Known(
        "monai.UNet", nets.UNet, {**_SMALL, **_LEVELS, "norm": "BATCH", "adn_ordering": "AN"}, (1, *CUBE)
    ),
    "UNet, flat": Known(
        "monai.UNet", nets.UNet,
        {**_SMALL, **_LEVELS, "spatial_dims": 2, "act": ("leakyrelu", {"negative_slope": 0.2})}, (1, 16, 24),
    ),
    "AttentionUnet": Known("monai.AttentionUnet", nets.AttentionUnet, {**_SMALL, **_LEVELS}, (1, *CUBE)),
    "BasicUNet": Known("monai.BasicUNet", nets.BasicUNet, {**_SMALL, "features": (4, 4, 8, 8, 8, 4)}, (1, 32, 32, 32)),
    "BasicUNet, resized": Known(
        "monai.BasicUNet", nets.BasicUNet,
        {**_SMALL, "spatial_dims": 2, "features": (4, 4, 8, 8, 8, 4), "upsample": "nontrainable", "act": "ELU"},
        (1, 32, 48),
    ),
    "BasicUNet, shuffled": Known(
        "monai.BasicUNet", nets.BasicUNet, {**_SMALL, "features": (2, 2, 4, 4, 4, 2), "upsample": "pixelshuffle"},
        (1, 16, 32, 16),
    ),
    "DynUNet": Known("monai.DynUNet", nets.DynUNet, {**_DYNAMIC, "trans_bias": True}, (1, 8, 16, 12)),
    "DynUNet, residual, supervised": Known(
        "monai.DynUNet", nets.DynUNet, {**_DYNAMIC, "res_block": True, "deep_supervision": True}, (1, 8, 16, 12)
    ),
    "SegResNet": Known("monai.SegResNet", nets.SegResNet, _SEGMENTING, (1, *CUBE)),
    "SegResNet, grown": Known(
        "monai.SegResNet", nets.SegResNet,
        {**_SEGMENTING, "upsample_mode": "deconv", "act": "PRELU", "norm": "BATCH", "dropout_prob": 0.1}, (1, *CUBE),
    ),
    "SegResNet, shuffled": Known(
        "monai.SegResNet", nets.SegResNet, {**_SEGMENTING, "upsample_mode": "pixelshuffle"}, (1, 8, 12, 8)
    ),
    "SegResNetDS": Known("monai.SegResNetDS", nets.SegResNetDS, {**_SCALED, "dsdepth": 2}, (1, *CUBE)),
    "SegResNetDS, thick": Known(
        "monai.SegResNetDS", nets.SegResNetDS,
        {**_SCALED, "resolution": (1, 1, 4), "norm": "INSTANCE"}, (1, 16, 16, 8),
    ),
    "SegResNetDS, resized": Known(
        "monai.SegResNetDS", nets.SegResNetDS, {**_SCALED, "upsample_mode": "nontrainable"}, (1, *CUBE)
    ),
    "VNet": Known("monai.VNet", nets.VNet, {**_SMALL, "in_channels": 2}, (2, *CUBE)),
    "VNet, prelu": Known("monai.VNet", nets.VNet, {**_SMALL, "act": "prelu", "bias": True}, (1, *CUBE)),
}  # fmt: skip
_P3D = {"in_channels": 1, "out_channels": 2, "f_maps": [8, 16, 32]}
_EM = {"in_channels": 1, "out_channels": 2, "initial_features": 4}
_TWICE, _THICK = [[2, 2, 2]] * 2, [[1, 2, 2], [2, 2, 2]]
_LSD = {
    "in_channels": 1,
    "num_fmaps": 4,
    "fmap_inc_factor": 2,
    "downsample_factors": [[1, 2, 2], [2, 2, 2], [1, 2, 2]],
}
_MEDNEXT = {
    "in_channels": 1, "n_channels": 4, "n_classes": 2, "exp_r": 2, "kernel_size": None, "enc_kernel_size": 3,
    "dec_kernel_size": 5, "block_counts": [1] * 9, "do_res": True, "do_res_up_down": True,
}  # fmt: skip


def _p3d(kind: str, cls: str, **more: Any) -> Known:
    older = {"older": True} if more.pop("older", False) else {}
    given = {**_P3D, **more}
    return Known(
        f"pytorch3dunet.{cls}", UNet3D, {**given, "kind": kind, **older}, (1, *CUBE), given
    )


def _em(**more: Any) -> Known:
    """torch-em's; the module says some arguments in another way."""
    given = {**_EM, "scale_factors": _TWICE, **more}
    made = dict(given)
    made["sides"] = made.pop("return_side_outputs", False)
    if made.pop("anisotropic_kernel", False):
        made["flat"] = (1, 3, 3)
    return Known("torch_em.AnisotropicUNet", TorchEm, made, (1, *CUBE), given)


def _rsunet(written: Mapping[str, Any], **more: Any) -> Known:
    made = {"width": [4, 6, 8], "heads": {"affinity": 3}, **more}
    return Known("emvision.RSUNet", RSUNet, made, (1, 6, 16, 16), written)


def _lsd(
    shape: tuple[int, ...], heads: Mapping[str, Any], out: tuple[int, ...] = (), **more: Any
) -> Known:
    given = {**_LSD, **more}
    return Known("funlib.UNet", Lsd, {**given, "out": out}, shape, {**given, "heads": heads})


OTHERS: dict[str, Known] = {
    "UNet3D": _p3d("double", "UNet3D"),
    "UNet3D, bcr, softmax": _p3d("double", "UNet3D", layer_order="bcr", final_sigmoid=False),
    "UNet3D, cld": _p3d("double", "UNet3D", layer_order="cld", is_segmentation=False),
    "ResidualUNet3D": _p3d("residual", "ResidualUNet3D"),
    "ResidualUNet3D, cge, older": _p3d("residual", "ResidualUNet3D", layer_order="cge", older=True),
    "ResidualUNetSE3D": _p3d("excited", "ResidualUNetSE3D", layer_order="gcl"),
    "torch-em": _em(final_activation="Sigmoid"),
    "torch-em, thick": _em(scale_factors=_THICK, anisotropic_kernel=True, norm="InstanceNormTrackStats"),
    "torch-em, several outputs": _em(return_side_outputs=True, out_channels=[1, 2], norm="GroupNorm"),
    "torch-em, without norms": _em(
        norm=None, out_channels=4, postprocessing="affinities_with_foreground_to_boundaries3d"
    ),
    "RSUNet": _rsunet({"act": "ReLU"}),
    "RSUNet, ELU, groups": _rsunet({"act": "ELU", "group": 2}, act="ELU", group=2),
    "RSUNet, two heads": _rsunet({"group": 0}, heads={"affinity": 3, "mito": 1}, nested=True),
    "LSD": _lsd((1, 44, 124, 124), {}),
    "LSD, two ways": _lsd(
        (1, 44, 124, 124), {"aff_head": "Sigmoid", "lsd_head": "Sigmoid"}, (3, 10), num_heads=2
    ),
    "LSD, same": _lsd((1, 8, 16, 16), {}, constant_upsample=True, padding="same"),
    "MedNeXt": Known("mednext.MedNeXt", MedNeXt, _MEDNEXT, (1, 32, 32, 32)),
    "MedNeXt, supervised, not residual": Known(
        "mednext.MedNeXt", MedNeXt,
        {**_MEDNEXT, "deep_supervision": True, "do_res": False, "do_res_up_down": False,
         "exp_r": [1, 2, 1, 2, 1, 2, 1, 2, 3]},
        (1, 32, 32, 32),
    ),
    "MedNeXt, layer norm, responses": Known(
        "mednext.MedNeXt", MedNeXt, {**_MEDNEXT, "norm_type": "layer", "grn": True}, (1, 32, 32, 32)
    ),
}  # fmt: skip
KNOWN = {**MONAI, **OTHERS}
LEARNED = (
    "UNet", "UNet, plain", "UNet, flat", "AttentionUnet", "DynUNet", "SegResNet", "UNet3D", "torch-em", "MedNeXt",
    "MedNeXt, layer norm, responses",
)  # fmt: skip
"""Those of which an update is compared: nothing in them is shared that would not be shared here."""


def written(known: Known, net: Any, folder: Path) -> Path:
    """The folder of a checkpoint of the program."""
    arguments = dict(known.written)
    if known.name.startswith("torch_em"):
        init = {"model_class": "torch_em.model.unet.AnisotropicUNet", "model_kwargs": arguments}
        torch.save({"model_state": net.state_dict(), "init": init}, folder / "best.pt")
        return folder
    torch.save({"model_state_dict": net.state_dict()}, folder / "best_checkpoint.pytorch")
    config = {"model": {"name": known.name.split(".")[1], **arguments}}
    (folder / "config.yml").write_text(json.dumps(config))
    return folder
