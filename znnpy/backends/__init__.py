"""Networks of runs as parts of other programs: MONAI's inferers, nnU-Net's predictor, chunkflow, napari."""

from znnpy.backends.patch_predictor import PatchPredictor

__all__ = ["PatchPredictor"]
