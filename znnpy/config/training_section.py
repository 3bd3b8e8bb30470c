"""The `training` and `run` sections: the learning itself, and the run around it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from znnpy.fields import (
    Bytes,
    Count,
    Factor,
    FilePath,
    Int,
    NonNegative,
    Positive,
    Size3,
    Strict,
    shorthand,
    wrong,
)
from znnpy.learning.losses import AnyLoss
from znnpy.learning.optimizers import OPTIMIZERS, AnyOptimizer, Sgd
from znnpy.learning.voxelwise import BINOMIAL

ConvChoice = Literal["auto", "direct", "fft", "spectral"]


class ConstantSchedule(Strict):
    """The learning rate stays."""

    kind: Literal["constant"] = Field(description="Schedule.")


class StepSchedule(Strict):
    """The learning rate is multiplied by `factor` every `every` iterations."""

    kind: Literal["step"] = Field(description="Schedule.")
    every: Count = Field(description="Iterations between two steps.")
    factor: Positive = Field(default=0.1, description="Factor at each step.")


class ExponentialSchedule(Strict):
    """The learning rate is multiplied by `factor` over every `every` iterations, smoothly."""

    kind: Literal["exponential"] = Field(description="Schedule.")
    every: Count = Field(default=1, description="Iterations over which `factor` applies once.")
    factor: Positive = Field(description="Factor over `every` iterations.")


class InverseSchedule(Strict):
    """The learning rate is divided by (1 + gamma * iteration) ** power, Caffe's `inv`."""

    kind: Literal["inv"] = Field(description="Schedule.")
    gamma: Positive = Field(description="Growth of the divisor before `power`, an iteration.")
    power: Positive = Field(default=0.75, description="Power of the divisor.")


class CosineSchedule(Strict):
    """The learning rate falls along half a cosine to `final` times its start."""

    kind: Literal["cosine"] = Field(description="Schedule.")
    every: Count | None = Field(
        default=None,
        description="Iterations of the fall (default: training.iterations); then it stays.",
    )
    final: Annotated[NonNegative, Field(le=1)] = Field(
        default=0.0, description="Learning rate at the end, as a fraction of its start."
    )


Schedule = Annotated[
    Annotated[
        ConstantSchedule | StepSchedule | ExponentialSchedule | InverseSchedule | CosineSchedule,
        Field(discriminator="kind"),
    ],
    shorthand("kind", str),
]


class ValidationSection(Strict):
    """Measuring the loss on data.validation while training."""

    every: Count = Field(default=500, description="Iterations between two validations.")
    patches: Count = Field(
        default=16, description="Patches a validation averages, the same ones each time."
    )


class OutputSection(Strict):
    """What one output of the network counts for."""

    weight: Factor = Field(default=1.0, description="Factor of this output's loss.")


class TrainingSection(Strict):
    """What is learned from the patches, and how."""

    iterations: Count = Field(default=1000, description="Updates to make in all.")
    batch: Annotated[Int, Field(ge=1, le=65536)] = Field(
        default=1, description="Patches per update."
    )
    microbatch: Annotated[Int, Field(ge=1, le=65536)] | None = Field(
        default=None,
        description="Patches that are computed at once, as one fixed plan; must divide batch (default: "
        "batch). Fewer take less memory; they set the rounding of sums, and what batch normalisation is over.",
    )
    order: Literal["random", "shuffled"] = Field(
        default="random",
        description="random: each patch lies anywhere; shuffled: every place comes once an epoch, in an order "
        "of the seed's and the epoch's.",
    )
    output_shape: Size3 = Field(
        description="Size of an output patch in voxels, z y x; the input patch follows from it, and "
        "from that the patches of coarser outputs."
    )
    loss: AnyLoss = Field(
        default=BINOMIAL.keys(kind=BINOMIAL.name),
        description="Loss, or a mapping of its kind and keys; the cross-entropies take a linear output as "
        "logits, a logistic or softmax one as probabilities.",
    )
    outputs: dict[str, OutputSection] = Field(
        default={},
        description="Outputs by node name, whose losses are added with weights (default: 1 each).",
    )
    rebalance: Literal["none", "patch", "volume"] = Field(
        default="none",
        description="Weigh classes equally: within each patch, over each volume, or not.",
    )
    optimizer: AnyOptimizer = Field(
        default=Sgd(kind="sgd"), description=f"{' or '.join(OPTIMIZERS)}, with its settings."
    )
    learning_rate: Positive = Field(default=0.01, description="Learning rate at the start.")
    schedule: Schedule = Field(
        default=ConstantSchedule(kind="constant"),
        description="How the learning rate changes: constant, step, exponential, inv or cosine.",
    )
    clip_norm: Positive | None = Field(
        default=None, description="Scale gradients down to this Euclidean norm over all parameters."
    )
    seed: Annotated[Int, Field(ge=0, lt=2**63)] = Field(
        default=0, description="Seed of all randomness: start, patches, augmentation, dropout."
    )
    conv: ConvChoice = Field(
        default="auto",
        description="Convolution algorithm; auto measures and takes the faster per layer.",
    )
    plan: FilePath | None = Field(
        default=None,
        description="Plan to repeat, as `znnpy check --save-plan` writes it, instead of what conv says "
        "(default: none). The plan of a run that goes on is its own.",
    )
    precision: Literal["float32", "float64"] = Field(
        default="float32", description="float64 is the slow reference, for checks."
    )
    validation: ValidationSection = Field(
        default=ValidationSection(), description="When and how much to validate."
    )

    @model_validator(mode="after")
    def _divided(self) -> TrainingSection:
        if self.microbatch and self.batch % self.microbatch:
            fitting = [size for size in range(1, self.batch + 1) if self.batch % size == 0]
            nearest = min(fitting, key=lambda size: abs(size - (self.microbatch or 1)))
            text = f"must divide batch, which is {self.batch}; {nearest} would"
            raise wrong(f"{text}; found {self.microbatch}", "microbatch")
        return self

    @property
    def at_once(self) -> int:
        """Patches that are computed at once."""
        return self.microbatch or self.batch

    def weight(self, output: str) -> float:
        """Factor of the loss of an output."""
        return self.outputs[output].weight if output in self.outputs else 1.0


class CheckpointSection(Strict):
    """Saving, so that a run can go on."""

    every: Count = Field(default=500, description="Iterations between two checkpoints.")
    keep: Count = Field(default=3, description="Latest checkpoints to keep.")


class RunSection(Strict):
    """The run around the training; nothing here changes what is learned."""

    directory: FilePath = Field(
        default="run",
        validate_default=True,
        description="Folder for checkpoints, logs and results, relative to the config file.",
    )
    threads: Annotated[Int, Field(ge=1, le=4096)] | None = Field(
        default=None, description="Worker threads (default: the cores this process may use)."
    )
    checkpoint: CheckpointSection = Field(default=CheckpointSection(), description="When to save.")
    log_every: Count = Field(default=10, description="Iterations between two lines of the log.")
    max_memory: Bytes | None = Field(
        default=None,
        description="Most memory to plan for, in bytes or as 8GiB (default: no limit). Updates that need more make "
        "again for their backward pass what they would have kept: fewer bytes, more time, the same bits. "
        "Layers are measured within it too. The copy of parameters that a checkpoint is written from counts.",
    )
    policy: Literal["critical-path", "distance", "fifo", "lifo", "random", "layers"] = Field(
        default="critical-path", description="Order of ready tasks."
    )
    steal_seed: Annotated[Int, Field(ge=0, lt=2**63)] = Field(
        default=0, description="Seed of the order in which idle workers look for tasks."
    )
