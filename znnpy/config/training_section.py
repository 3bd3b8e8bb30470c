"""The `training`, `run` and `distributed` sections of a config: loss, optimiser, batch; threads, memory; ranks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from znnpy.config.data_section import Target
from znnpy.config.schedule_section import ConstantSchedule, Schedule
from znnpy.fields import (
    Bool,
    Bytes,
    Count,
    Factor,
    FilePath,
    Float,
    Fraction,
    Int,
    Positive,
    Size3,
    Strict,
    shorthand,
    shown,
    wrong,
)
from znnpy.learning.loss import LossKeys
from znnpy.learning.losses import AnyLoss
from znnpy.learning.optimizers import OPTIMIZERS, AnyOptimizer, Sgd
from znnpy.learning.voxelwise import BINOMIAL

ConvChoice = Literal["auto", "direct", "fft", "spectral", "winograd"]


class ValidationSection(Strict):
    """Validation: measures loss and score on data.validation during training and of the final weights."""

    every: Count = Field(default=500, description="Iterations between two validations.")
    patches: Count = Field(
        default=16, description="Patches that a validation averages over, the same ones each time."
    )
    score: str = Field(
        default="loss",
        description="Score by which the best checkpoint is chosen: loss, voxel_error, accuracy, or a metric of voxels "
        "such as average_precision.",
    )
    patience: Count | None = Field(
        default=None,
        description="Early stopping: training ends after so many validations in a row without a better score "
        "(default: never).",
    )


class EmaSection(Strict):
    """Exponential moving average (EMA) of the weights, by which validations and predictions are made."""

    decay: Fraction = Field(
        default=0.999,
        description="Share of the average that stays at each update, in [0, 1); early on it is at most (1 + n) / (10 + "
        "n) after n updates.",
    )


class OutputSection(Strict):
    """Settings of one output of the network."""

    weight: Factor = Field(default=1.0, description="Weight of this output's loss in the sum.")
    target: Target | None = Field(
        default=None, description="What this output learns (default: data.target), such as lsd."
    )
    loss: AnyLoss | None = Field(
        default=None,
        description="Loss of this output, by name or with keys, as training.loss is, which is the default.",
    )


def _renamed(given: dict[str, str | None]) -> dict[str, str | None]:
    for theirs, ours in given.items():
        if theirs.count("*") > 1 or (ours or "").count("*") > theirs.count("*"):
            text = "must have one * at most, and none in the new name without one in the old"
            raise wrong(f"{text}; found {shown(theirs)}: {shown(ours)}", theirs)
    return given


class StartSection(Strict):
    """Weights that training begins with: those of another run, or of a file."""

    weights: FilePath = Field(
        description="Run directory, or npz file: a checkpoint of a run, or arrays by the names of parameters."
    )
    checkpoint: Literal["best", "latest"] | Annotated[Int, Field(ge=0, lt=10**9)] = Field(
        default="latest",
        description="Which checkpoint of a run: best, latest or a number of iterations.",
    )
    rename: Annotated[dict[str, str | None], AfterValidator(_renamed)] = Field(
        default={},
        description="Names of parameters there, and those they have here; a * in both stands for the same text, null "
        "leaves them out. The first that fits a name counts.",
    )


class TrainingSection(Strict):
    """The training itself: patches, loss, optimiser, learning rate, precision."""

    iterations: Count = Field(default=1000, description="Total number of updates.")
    batch: Annotated[Int, Field(ge=1, le=65536)] = Field(
        default=1, description="Patches per update."
    )
    microbatch: Literal["auto"] | Annotated[Int, Field(ge=1, le=65536)] | None = Field(
        default=None,
        description="Patches that are computed at once; gradients accumulate over the microbatches of a batch "
        "(gradient accumulation). Must divide batch (default: batch). Fewer take less memory; the number "
        "sets the rounding of sums, and the samples over which batch normalisation takes its statistics. "
        "auto: chosen by cores and memory when a run begins, and kept with it.",
    )
    order: Literal["random", "shuffled"] = Field(
        default="random",
        description="random: each patch lies at a random position; shuffled: every position comes once an epoch, in "
        "an order drawn anew for each epoch.",
    )
    oversample_foreground: Annotated[Float, Field(ge=0, le=1)] = Field(
        default=0.0,
        description="Share of the patches that are centred on a voxel of foreground, of a class drawn among those that "
        "there are (nnU-Net: 0.33); the others lie anywhere. Needs order: random.",
    )
    output_shape: Size3 = Field(
        description="Size of an output patch in voxels, z y x; the input patch follows from it and the receptive "
        "field (field of view), and from that the patches of coarser outputs."
    )
    loss: AnyLoss = Field(
        default=BINOMIAL.keys(kind=BINOMIAL.name),
        description="Loss, by name, or a mapping of its kind and keys; the cross-entropies take a linear output as "
        "logits, a logistic or softmax one as probabilities. Of all outputs that have none of their own.",
    )
    outputs: dict[str, OutputSection] = Field(
        default={},
        description="Outputs by node name, each with its target, its loss, and the weight of that in the sum "
        "(default: 1).",
    )
    rebalance: Literal["none", "patch", "volume"] = Field(
        default="none",
        description="Class weighting: none, patch (classes count equally within each patch) or volume (over each "
        "volume).",
    )
    optimizer: AnyOptimizer = Field(
        default=Sgd(kind="sgd"), description=f"{' or '.join(OPTIMIZERS)}, with its settings."
    )
    learning_rate: Positive = Field(
        default=0.01,
        description="Initial learning rate: that after a warm-up, or the highest of one_cycle.",
    )
    base_batch: Annotated[Int, Field(ge=1, le=65536)] | None = Field(
        default=None,
        description="Batch that learning_rate is meant for: it is multiplied by batch / base_batch (linear scaling; "
        "default: it is taken as it is).",
    )
    schedule: Schedule = Field(
        default=ConstantSchedule(kind="constant"),
        description="Learning-rate schedule: constant, step, exponential, inv, cosine, poly or one_cycle; any but the "
        "last may begin with a warm-up.",
    )
    ema: Annotated[EmaSection | None, shorthand("decay", int, float)] = Field(
        default=None,
        description="Exponential moving average of the weights (EMA), which is validated, saved, evaluated and "
        "predicted from (default: none).",
    )
    start_from: Annotated[StartSection | None, shorthand("weights", str)] = Field(
        default=None,
        description="Weights of another run or of an npz file to begin with, instead of random ones (default: none); "
        "the optimiser's state begins anew.",
    )
    freeze: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="Patterns (*, ?) of the names of parameters that training leaves as they are.",
    )
    clip_norm: Positive | None = Field(
        default=None,
        description="Gradient clipping: scale gradients down to this Euclidean norm over all parameters (default: "
        "none).",
    )
    seed: Annotated[Int, Field(ge=0, lt=2**63)] = Field(
        default=0,
        description="Seed of all random numbers: initial weights, patches, augmentation, dropout.",
    )
    conv: ConvChoice = Field(
        default="auto",
        description="Convolution algorithm of the layers that it takes, others run by direct; auto measures each "
        "layer and takes the fastest.",
    )
    plan: FilePath | None = Field(
        default=None,
        description="Plan to use again, as written by `znnpy check --save-plan`, instead of what conv says (default: "
        "none). A resumed run keeps its own plan.",
    )
    precision: Literal["float32", "float64"] = Field(
        default="float32", description="float32, or float64: the slow reference, for checks."
    )
    validation: ValidationSection = Field(
        default=ValidationSection(),
        description="How often to validate, on how many patches, and by which score.",
    )

    @model_validator(mode="after")
    def _divided(self) -> TrainingSection:
        if self.batch % self.at_once:
            fitting = [size for size in range(1, self.batch + 1) if self.batch % size == 0]
            nearest = min(fitting, key=lambda size: abs(size - self.at_once))
            text = f"must divide batch, which is {self.batch}; {nearest} would"
            raise wrong(f"{text}; found {self.microbatch}", "microbatch")
        return self

    @property
    def at_once(self) -> int:
        """The number of patches that are computed at once; all of a batch while that is to be chosen."""
        return self.microbatch if isinstance(self.microbatch, int) else self.batch

    @property
    def scale_of_rate(self) -> float:
        """What `learning_rate` is multiplied by for the batch."""
        return 1.0 if self.base_batch is None else self.batch / self.base_batch

    @property
    def full_rate(self) -> float:
        """The learning rate that the schedule begins with, for the batch."""
        return self.learning_rate * self.scale_of_rate

    def weight(self, output: str) -> float:
        """Return the weight of an output's loss."""
        return self.outputs[output].weight if output in self.outputs else 1.0

    def loss_of(self, output: str) -> LossKeys:
        """Return an output's loss: its own, or else `loss`."""
        own = self.outputs.get(output)
        return self.loss if own is None or own.loss is None else own.loss

    @property
    def losses_apart(self) -> bool:
        """Whether any output has a loss of its own, so that each one's is told beside their sum."""
        return any(own.loss is not None for own in self.outputs.values())


class CheckpointSection(Strict):
    """Checkpoints, from which a run can be resumed."""

    every: Count = Field(default=500, description="Iterations between two checkpoints.")
    keep: Count = Field(default=3, description="Number of latest checkpoints to keep.")


class RunSection(Strict):
    """The run around the training: folders, threads, memory, logs; nothing here changes what is learned."""

    directory: FilePath = Field(
        default="run",
        validate_default=True,
        description="Folder for checkpoints, logs and results, relative to the config file.",
    )
    threads: Annotated[Int, Field(ge=1, le=4096)] | None = Field(
        default=None, description="Worker threads (default: the cores this process may use)."
    )
    checkpoint: CheckpointSection = Field(
        default=CheckpointSection(),
        description="How often to save checkpoints, and how many to keep.",
    )
    log_every: Count = Field(default=10, description="Iterations between two lines of the log.")
    tensorboard: Bool = Field(
        default=False,
        description="Write event files for TensorBoard too, into the folder tensorboard of the run "
        "(needs the extra znnpy[tensorboard]).",
    )
    max_memory: Bytes | None = Field(
        default=None,
        description="Memory limit to plan for, in bytes or as 8GiB (default: no limit). Updates that need more use "
        "activation checkpointing (rematerialisation): the backward pass computes activations again "
        "instead of keeping them, which takes less memory and more time and gives the same bits. Timing "
        "of layers stays within the limit too. The copy of parameters that a checkpoint is written from "
        "counts.",
    )
    policy: Literal["critical-path", "distance", "fifo", "lifo", "random", "layers"] = Field(
        default="critical-path", description="Order in which ready tasks run (scheduling policy)."
    )
    steal_seed: Annotated[Int, Field(ge=0, lt=2**63)] = Field(
        default=0, description="Seed of the order in which idle workers try to steal tasks."
    )


class DistributedSection(Strict):
    """Data-parallel training over ranks; a single process ignores it."""

    strategy: Literal["auto", "tree", "multicolor", "allreduce", "blocking"] = Field(
        default="auto",
        description="How gradients are summed over ranks (the all-reduce). tree: to rank 0, which updates the weights "
        "and sends them back; multicolor: over several trees, and sums are sent back; both give the same "
        "bits as one process, and auto picks the one that a short measurement at the start favours. "
        "allreduce, blocking: by the MPI library, in an order of its own.",
    )
    colors: Annotated[Int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="Number of trees of multicolor (default: 8)."
    )
    chunk: Bytes | None = Field(
        default=None,
        description="Size of a message, in bytes or as 256KiB (default: 1 MiB; multicolor: 256 KiB, "
        "of large layers up to 1 MiB).",
    )
    shared_memory: bool = Field(
        default=True,
        description="true: ranks of one host read each other's gradients and weights in shared memory (tree and "
        "multicolor) instead of sending messages.",
    )
