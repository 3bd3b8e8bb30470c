"""The whole config: five sections, frozen, paths absolute once loaded from a file."""

from __future__ import annotations

from pydantic import Field

from znnpy.config.data_section import (
    AffinityTarget,
    AugmentSection,
    BoundaryTarget,
    DataSection,
    LabelsTarget,
    Source,
    Target,
    VolumeSection,
)
from znnpy.config.fields import Strict
from znnpy.config.network_section import (
    ConvEdge,
    ConvLayer,
    CropEdge,
    CropLayer,
    DropoutEdge,
    DropoutLayer,
    EdgeSection,
    InitSection,
    LayerSection,
    MaxFilterEdge,
    MaxFilterLayer,
    MaxPoolEdge,
    MaxPoolLayer,
    NetworkSection,
    NodeSection,
)
from znnpy.config.training_section import (
    Adam,
    CheckpointSection,
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    Optimizer,
    RunSection,
    Schedule,
    Sgd,
    StepSchedule,
    TrainingSection,
    ValidationSection,
)

__all__ = [
    "Adam",
    "AffinityTarget",
    "AugmentSection",
    "BoundaryTarget",
    "CheckpointSection",
    "Config",
    "ConstantSchedule",
    "ConvEdge",
    "ConvLayer",
    "CosineSchedule",
    "CropEdge",
    "CropLayer",
    "DataSection",
    "DropoutEdge",
    "DropoutLayer",
    "EdgeSection",
    "ExponentialSchedule",
    "InitSection",
    "LabelsTarget",
    "LayerSection",
    "MaxFilterEdge",
    "MaxFilterLayer",
    "MaxPoolEdge",
    "MaxPoolLayer",
    "NetworkSection",
    "NodeSection",
    "Optimizer",
    "RunSection",
    "Schedule",
    "Sgd",
    "Source",
    "StepSchedule",
    "Target",
    "TrainingSection",
    "ValidationSection",
    "VolumeSection",
]


class Config(Strict):
    """Everything a run needs: `network`, `data`, `augment`, `training`, `run`."""

    network: NetworkSection = Field(description="The network.")
    data: DataSection = Field(default=DataSection(), description="Volumes and targets.")
    augment: AugmentSection = Field(
        default=AugmentSection(), description="Variation of training patches."
    )
    training: TrainingSection = Field(description="Loss, optimizer, patches.")
    run: RunSection = Field(
        default_factory=RunSection, description="Directory, threads, checkpoints, logs."
    )
