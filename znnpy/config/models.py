"""The whole config as one frozen model of seven sections, and its `inference` section: sliding windows and blending.

Paths are absolute once a config was loaded from a file. The other sections have modules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from znnpy.config.augment_section import AugmentSection, Axis
from znnpy.config.data_section import (
    AffinityTarget,
    BoundaryTarget,
    DataSection,
    ImageTarget,
    LabelsTarget,
    LsdTarget,
    MaskTarget,
    Source,
    Target,
    UnknownTarget,
    VolumeSection,
)
from znnpy.config.network_section import (
    EdgeSection,
    LayerSection,
    NetworkSection,
    NodeSection,
)
from znnpy.config.schedule_section import (
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    InverseSchedule,
    OneCycleSchedule,
    PolySchedule,
    Schedule,
    StepSchedule,
    WarmupSection,
)
from znnpy.config.training_section import (
    CheckpointSection,
    DistributedSection,
    RunSection,
    TrainingSection,
    ValidationSection,
)
from znnpy.fields import Bool, Int, Share3, Size3, Strict

BlendName = Literal["gaussian", "linear", "constant", "nnunet"]
SpreadName = Literal["steps", "even"]

__all__ = [
    "AffinityTarget",
    "AugmentSection",
    "BlendName",
    "BoundaryTarget",
    "CheckpointSection",
    "Config",
    "ConstantSchedule",
    "CosineSchedule",
    "DataSection",
    "DistributedSection",
    "EdgeSection",
    "ExponentialSchedule",
    "ImageTarget",
    "InferenceSection",
    "InverseSchedule",
    "LabelsTarget",
    "LayerSection",
    "LsdTarget",
    "MaskTarget",
    "NetworkSection",
    "NodeSection",
    "OneCycleSchedule",
    "PolySchedule",
    "RunSection",
    "Schedule",
    "Source",
    "SpreadName",
    "StepSchedule",
    "Target",
    "TrainingSection",
    "UnknownTarget",
    "ValidationSection",
    "VolumeSection",
    "WarmupSection",
]


class InferenceSection(Strict):
    """How predictions are made: calibration, and windows of networks with padding, or instance, group or layer norm."""

    window: Size3 | None = Field(
        default=None,
        description="Output voxels of one window, z y x (default: training.output_shape).",
    )
    overlap: Share3 = Field(
        default=(0.5, 0.5, 0.5),
        description="Fraction of a window that the next one overlaps, z y x, in [0, 1).",
    )
    blend: BlendName = Field(
        default="gaussian",
        description="Weights of a window's voxels where windows overlap: gaussian (sigma an eighth of the window), "
        "linear (a ramp as long as the overlap), constant, or nnunet (its gaussian, around voxel n / 2, in float16).",
    )
    spread: SpreadName = Field(
        default="steps",
        description="Places of windows: steps (each a whole step after the one before, the last moved back, as MONAI) "
        "or even (equally far apart, as nnU-Net).",
    )
    flips: tuple[Axis, ...] = Field(
        default=(),
        description="Axes of whose mirror images the mean is taken in predictions of scans (data.prepare).",
    )
    recalibrate: Bool | None = Field(
        default=None,
        description="Undo what weighted classes (training.rebalance, class_weights) did to probabilities, where it is "
        "known: in predictions, scores and exported files (default: true; for affinities, false).",
    )
    regions: tuple[Annotated[Int, Field(ge=0, lt=2**16)], ...] | None = Field(
        default=None,
        description="In predictions of labels (of scans, and with --labels): the label of each channel above a half, "
        "later ones over earlier ones (default: the number of the largest channel).",
    )


class Config(Strict):
    """Everything a run needs: `network`, `data`, `augment`, `training`, `distributed`, `inference`, `run`."""

    network: NetworkSection = Field(description="The network.")
    data: DataSection = Field(default=DataSection(), description="Volumes and targets.")
    augment: AugmentSection = Field(
        default=AugmentSection(), description="Data augmentation: flips, axis swaps, distortions."
    )
    training: TrainingSection = Field(description="Loss, optimizer, learning rate, patches.")
    distributed: DistributedSection = Field(
        default=DistributedSection(), description="Data-parallel training over several ranks."
    )
    inference: InferenceSection = Field(
        default=InferenceSection(),
        description="Sliding windows, where predicted values depend on the patch.",
    )
    run: RunSection = Field(
        default_factory=RunSection, description="Directory, threads, checkpoints, logs."
    )

    def place(self, *key: str | int) -> str:
        """Return file, line and name of a key, as problems begin; the name alone for a config that is of no file."""
        return self.network.named_place(key)

    def target(self, output: str) -> Target:
        """Return what an output learns: its own target, or else data.target."""
        own = self.training.outputs.get(output)
        return self.data.target if own is None or own.target is None else own.target

    def target_place(self, output: str, *key: str) -> str:
        """Return file, line and name of the key that says what an output learns, or of one within it."""
        return self.place(*self._key_of("target", output), *key)

    def target_key(self, output: str) -> str:
        """Return the name of the key that says what an output learns."""
        return ".".join(self._key_of("target", output))

    def loss_place(self, output: str) -> str:
        """Return file, line and name of the key that says by which loss an output learns."""
        return self.place(*self._key_of("loss", output))

    def loss_key(self, output: str) -> str:
        """Return the name of the key that says by which loss an output learns."""
        return ".".join(self._key_of("loss", output))

    def _key_of(self, what: Literal["target", "loss"], output: str) -> tuple[str, ...]:
        if getattr(self.training.outputs.get(output), what, None) is not None:
            return "training", "outputs", output, what
        return ("data" if what == "target" else "training"), what

    @model_validator(mode="before")
    @classmethod
    def _empty_sections(cls, data: Any) -> Any:
        """Take a section without keys as an empty mapping; add `run`, so that its default directory is resolved."""
        if not isinstance(data, Mapping):
            return data
        filled = {"run": None, **data}
        sections = cls.model_fields
        return {k: {} if v is None and k in sections else v for k, v in filled.items()}
