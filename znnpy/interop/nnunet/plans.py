"""nnU-Net's plans.json: one configuration, what it inherits resolved, and plans of versions without an architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from znnpy.errors import ModelFileError
from znnpy.interop.described import Described

RESAMPLING = "resample_data_or_seg_to_shape"
READERS = ("SimpleITKIO", "NibabelIO", "NaturalImage2DIO")
"""Those that take axes and voxel size as the file has them; others turn scans, or read sizes from elsewhere."""
_ENDS = 16  # configurations that inherit from one another


@dataclass(frozen=True)
class Plans:
    """The plans, and the configuration that a checkpoint was trained with."""

    whole: Described
    configuration: Described
    name: str

    @classmethod
    def of(cls, whole: Described, name: str) -> Plans:
        """Return the plans of a configuration; ModelFileError for what is not supported."""
        found = Described(_inherited(whole, name), f"{whole.where}: configurations: {name}")
        if "previous_stage" in found:
            raise found.wrong(
                "previous_stage", "makes this the second net of a cascade, which is not supported"
            )
        _refuse_other(found, "preprocessor_name", "DefaultPreprocessor")
        for what in ("data", "probabilities"):
            _refuse_other(found, f"resampling_fn_{what}", RESAMPLING)
        _refuse_other(whole, "label_manager", "LabelManager")
        reader = whole.text("image_reader_writer")
        if reader not in READERS:
            raise whole.wrong("image_reader_writer", f"must be one of {', '.join(READERS)}")
        return cls(whole, found, name)

    @property
    def dimensions(self) -> int:
        """2 or 3."""
        count = len(self.configuration.integers("patch_size"))
        if count not in (2, 3):
            raise self.configuration.wrong("patch_size", "must have two or three sizes")
        return count

    def architecture(self) -> Described:
        """Return the architecture, as newer plans have it."""
        if "architecture" in self.configuration:
            return self.configuration.inside("architecture")
        return Described(_rebuilt(self.configuration), self.configuration.where)

    def intensities(self, channel: int) -> Described:
        """Return the statistics of a channel's foreground."""
        for key in ("foreground_intensity_properties_per_channel",
                    "foreground_intensity_properties_by_modality"):  # fmt: skip
            if key in self.whole:
                return self.whole.inside(key).inside(str(channel))
        raise self.whole.wrong("foreground_intensity_properties_per_channel", "must be an object")


def _inherited(whole: Described, name: str) -> Mapping[str, Any]:
    """Return the keys of a configuration over those that it inherits."""
    configurations = whole.inside("configurations")
    found: dict[str, Any] = {}
    for _ in range(_ENDS):
        here = configurations.inside(name)
        found = {**here.values, **found}
        if "inherits_from" not in here:
            return found
        name = here.text("inherits_from")
    raise ModelFileError(f"{configurations.where}: {name} inherits from itself")


def _refuse_other(found: Described, key: str, wanted: str) -> None:
    if key in found and found.text(key) != wanted:
        raise found.wrong(key, f"must be {wanted}; others are not supported")


def _rebuilt(old: Described) -> dict[str, Any]:
    """Return the architecture of plans that describe it in keys of their own."""
    kind = old.text("UNet_class_name")
    counts = old.integers("n_conv_per_stage_encoder")
    base, most = old.integer("UNet_base_num_features"), old.integer("unet_max_num_features")
    flat = len(old.integers("patch_size")) == 2
    convs = "n_blocks_per_stage" if kind == "ResidualEncoderUNet" else "n_conv_per_stage"
    return {
        "network_class_name": kind,
        "arch_kwargs": {
            "n_stages": len(counts),
            "features_per_stage": [min(base << level, most) for level in range(len(counts))],
            "conv_op": f"torch.nn.modules.conv.Conv{2 if flat else 3}d",
            "kernel_sizes": old.listed("conv_kernel_sizes"),
            "strides": old.listed("pool_op_kernel_sizes"),
            convs: counts,
            "n_conv_per_stage_decoder": old.integers("n_conv_per_stage_decoder"),
            "conv_bias": True,
            "norm_op": f"torch.nn.modules.instancenorm.InstanceNorm{2 if flat else 3}d",
            "norm_op_kwargs": {"eps": 1e-5, "affine": True},
            "nonlin": "torch.nn.LeakyReLU",
            "nonlin_kwargs": {"inplace": True},
        },
    }
