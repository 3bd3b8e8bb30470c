"""Plans and datasets of nnU-Net, small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FINEST = (8, 12, 16)
NETS = "dynamic_network_architectures.architectures.unet."


def resampled(order: int, seg: bool = False) -> dict[str, Any]:
    return {"is_seg": seg, "order": order, "order_z": 0, "force_separate_z": None}


@dataclass(frozen=True)
class Recipe:
    """What plans say; sizes by axis z, y, x, or y, x."""

    patch: Sequence[int] = (16, 32, 32)
    spacing: Sequence[float] = (1.0, 1.0, 1.0)
    schemes: Sequence[str] = ("ZScoreNormalization",)
    masks: Sequence[bool] = (False,)
    transpose: Sequence[int] = (0, 1, 2)
    labels: Mapping[str, Any] = field(default_factory=lambda: {"background": 0, "a": 1, "b": 2})
    regions: Sequence[int] | None = None
    residual: bool = False
    old: bool = False
    widths: Sequence[int] = FINEST
    folds: Sequence[int] = (0,)
    mirrored: Sequence[int] | None = (0, 1, 2)
    reader: str = "SimpleITKIO"

    @property
    def flat(self) -> bool:
        return len(self.patch) == 2

    @property
    def dataset(self) -> dict[str, Any]:
        more = {} if self.regions is None else {"regions_class_order": list(self.regions)}
        names = {str(number): f"channel {number}" for number in range(len(self.schemes))}
        return {
            "channel_names": names,
            "labels": dict(self.labels),
            "file_ending": ".nii.gz",
            **more,
        }

    @property
    def plans(self) -> dict[str, Any]:
        configuration = {
            "data_identifier": "x",
            "preprocessor_name": "DefaultPreprocessor",
            "batch_size": 2,
            "patch_size": list(self.patch),
            "median_image_size_in_voxels": list(self.patch),
            "spacing": list(self.spacing),
            "normalization_schemes": list(self.schemes),
            "use_mask_for_norm": list(self.masks),
            "resampling_fn_data": "resample_data_or_seg_to_shape",
            "resampling_fn_seg": "resample_data_or_seg_to_shape",
            "resampling_fn_data_kwargs": resampled(3),
            "resampling_fn_seg_kwargs": resampled(1, seg=True),
            "resampling_fn_probabilities": "resample_data_or_seg_to_shape",
            "resampling_fn_probabilities_kwargs": resampled(1),
            "batch_dice": True,
            **self.net,
        }
        numbers = {"mean": 30.0, "std": 20.0, "percentile_00_5": -60.0, "percentile_99_5": 90.0}
        statistics = {str(channel): numbers for channel in range(len(self.schemes))}
        return {
            "dataset_name": "Dataset001_X",
            "plans_name": "nnUNetPlans",
            "original_median_spacing_after_transp": [1.0, 1.0, 1.0],
            "original_median_shape_after_transp": [32, 32, 32],
            "image_reader_writer": self.reader,
            "transpose_forward": list(self.transpose),
            "transpose_backward": [int(axis) for axis in np.argsort(self.transpose)],
            "experiment_planner_used": "ExperimentPlanner",
            "label_manager": "LabelManager",
            "foreground_intensity_properties_per_channel": statistics,
            "configurations": {
                "base": configuration,
                "small": {"inherits_from": "base", "batch_size": 3},
            },
        }

    @property
    def net(self) -> dict[str, Any]:
        """Thick sections at first."""
        axes, levels = len(self.patch), len(self.widths)
        sizes, steps = [[3] * axes for _ in self.widths], [[2] * axes for _ in self.widths]
        steps[0] = [1] * axes
        if not self.flat:
            sizes[0], steps[1] = [1, 3, 3], [1, 2, 2]
        down = [1, *range(2, levels + 1)] if self.residual else [2] * levels
        up = [1] * (levels - 1) if self.residual else [*range(1, levels)]
        kind = "ResidualEncoderUNet" if self.residual else "PlainConvUNet"
        if self.old:
            return {
                "UNet_class_name": kind,
                "UNet_base_num_features": self.widths[0],
                "unet_max_num_features": self.widths[-1],
                "conv_kernel_sizes": sizes,
                "pool_op_kernel_sizes": steps,
                "num_pool_per_axis": [levels - 1] * axes,
                "n_conv_per_stage_encoder": down,
                "n_conv_per_stage_decoder": up,
            }
        arguments = {
            "n_stages": levels,
            "features_per_stage": list(self.widths),
            "conv_op": f"torch.nn.modules.conv.Conv{axes}d",
            "kernel_sizes": sizes,
            "strides": steps,
            "n_blocks_per_stage" if self.residual else "n_conv_per_stage": down,
            "n_conv_per_stage_decoder": up,
            "conv_bias": True,
            "norm_op": f"torch.nn.modules.instancenorm.InstanceNorm{axes}d",
            "norm_op_kwargs": {"eps": 1e-5, "affine": True},
            "dropout_op": None,
            "dropout_op_kwargs": None,
            "nonlin": "torch.nn.LeakyReLU",
            "nonlin_kwargs": {"inplace": True},
        }
        needed = ["conv_op", "norm_op", "dropout_op", "nonlin"]
        architecture = {
            "network_class_name": NETS + kind,
            "arch_kwargs": arguments,
            "_kw_requires_import": needed,
        }
        return {"architecture": architecture}
