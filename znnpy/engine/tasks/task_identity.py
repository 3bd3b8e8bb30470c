"""`Identity`: which edge or node a task belongs to, which pass and which part of it; labels follow from these.

Plans, profiles and reports find tasks by their identity, never by their labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum, unique
from typing import NamedTuple

from znnpy.graph import BARRIER, TaskGraph
from znnpy.plan.types import PassName


class Pass(StrEnum):
    """The pass that a task serves; the value is its name in reports.

    Work that several passes share belongs to the first that needs it; work derived from filters belongs to the pass
    that uses it, even if it is done after the update.
    """

    FORWARD = "forward"
    BACKWARD = "backward"
    WEIGHT = "weight gradient"
    UPDATE = "update"
    LOSS = "loss"
    ORDER = "order"
    """Tasks without work that only make others wait."""


PASS_OF: Mapping[PassName, Pass] = {
    "forward": Pass.FORWARD,
    "gradient": Pass.BACKWARD,
    "weight": Pass.WEIGHT,
}
"""The passes of a convolution by their names in plans."""


class Kind(StrEnum):
    """The kind of work that a task does, for reports."""

    DIRECT = "direct"
    WINOGRAD = "winograd"
    PRODUCT = "product"
    TRANSFORM = "transform"
    POOL = "pool"
    GROW = "upsample"
    SUM = "sum"
    TRANSFER = "transfer"
    STATISTICS = "statistics"
    COPY = "copy"
    DROPOUT = "dropout"
    UPDATE = "update"
    LOSS = "loss"
    GATE = "gate"
    BARRIER = "barrier"
    MESSAGE = "message"


ELEMENTWISE = frozenset(
    {Kind.POOL, Kind.GROW, Kind.SUM, Kind.TRANSFER, Kind.STATISTICS, Kind.COPY}
    | {Kind.DROPOUT, Kind.UPDATE, Kind.LOSS}
)
"""Kinds of work that bytes bound, not operations."""


@unique
class Part(Enum):
    """The part of a pass that a task is: words for its label, and its kind of work.

    `only`: the pass to which this part always belongs, so that its label need not name it.
    """

    # An empty word: the pass alone names the task, as it is the only one of its kind there.
    DIRECT = "", Kind.DIRECT
    WINOGRAD = "", Kind.WINOGRAD
    # Data and weight gradient in one task.
    BOTH = "both gradients", Kind.WINOGRAD
    MAXIMA = "", Kind.POOL
    GROWTH = "", Kind.GROW
    AVERAGES = "averages", Kind.POOL
    DROPOUT = "", Kind.DROPOUT
    COPY = "", Kind.COPY
    OUTPUT = "output", Kind.COPY, Pass.FORWARD
    FRAME = "frame", Kind.COPY
    FOLD = "fold", Kind.SUM, Pass.BACKWARD
    FUNCTION = "", Kind.TRANSFER
    STATISTICS = "statistics", Kind.STATISTICS
    MERGED = "merged statistics", Kind.STATISTICS
    NORMALIZED = "normalised", Kind.TRANSFER
    SPLIT = "split", Kind.COPY, Pass.BACKWARD
    # Feature maps, their spectra or tiles, and back.
    IMAGE_SPECTRA = "spectra", Kind.TRANSFORM
    OUTPUT_SPECTRA = "output spectra", Kind.TRANSFORM
    KEPT_TILES = "kept tiles", Kind.TRANSFORM
    TILES = "tiles", Kind.TRANSFORM
    OUTPUT_TILES = "output tiles", Kind.TRANSFORM
    PRODUCTS = "products", Kind.PRODUCT
    INVERSE = "inverse", Kind.TRANSFORM
    ZEROS = "zeros", Kind.SUM
    FILTERS_READ = "filters read", Kind.COPY
    # Derived from filters.
    FILTER_SPECTRA = "filter spectra", Kind.TRANSFORM
    FILTER_TILES = "filter tiles", Kind.TRANSFORM
    FILTER_POINTS = "filter points", Kind.TRANSFORM
    DENSE_FILTERS = "dense filters", Kind.COPY
    TRANSPOSE = "transpose", Kind.COPY
    # Sums, gradients of parameters, loss and update.
    SUM = "sum", Kind.SUM
    LARGEST = "largest", Kind.SUM
    MULTIPLIED = "product", Kind.SUM
    SPECTRAL_SUM = "spectral sum", Kind.SUM
    BIAS = "bias gradient", Kind.SUM, Pass.WEIGHT
    SLOPE = "slope", Kind.COPY, Pass.FORWARD
    SLOPES = "slopes gradient", Kind.SUM, Pass.WEIGHT
    REPEATS = "repeats", Kind.SUM, Pass.WEIGHT
    GROUPS = "groups", Kind.SUM
    STANDARDIZED = "standardised", Kind.STATISTICS
    LOSS = "loss", Kind.LOSS, Pass.LOSS
    LOSS_SUM = "loss sum", Kind.LOSS, Pass.LOSS
    MICROBATCHES = "sum of microbatches", Kind.SUM, Pass.UPDATE
    NORM = "norm", Kind.UPDATE, Pass.UPDATE
    CLIP = "clip", Kind.UPDATE, Pass.UPDATE
    RUNNING = "running statistics", Kind.UPDATE, Pass.UPDATE
    UPDATE = "update", Kind.UPDATE, Pass.UPDATE
    AVERAGE = "moving average", Kind.UPDATE, Pass.UPDATE
    # Between ranks: sums and copies, tasks that post a message, tasks that wait until it has come or gone.
    RANKS = "sum over ranks", Kind.SUM, Pass.UPDATE
    COPIED = "copy over ranks", Kind.COPY, Pass.UPDATE
    POST = "post", Kind.MESSAGE, Pass.ORDER
    SENT = "sent", Kind.MESSAGE, Pass.ORDER
    RECEIVED = "received", Kind.MESSAGE, Pass.ORDER
    GATE = "gate", Kind.GATE, Pass.ORDER
    BARRIER = "barrier", Kind.BARRIER, Pass.ORDER

    def __init__(self, label: str, kind: Kind, only: Pass | None = None) -> None:
        self.label, self.kind, self.only = label, kind, only


class Identity(NamedTuple):
    """The identity of a task; `owner` names an edge or a node, None if it belongs to the whole network."""

    owner: str | None
    serves: Pass
    part: Part

    @property
    def kind(self) -> Kind:
        """The kind of work."""
        return self.part.kind

    @property
    def waits(self) -> bool:
        """Whether it does no work and only makes others wait."""
        return self.serves is Pass.ORDER

    @property
    def label(self) -> str:
        """Owner, pass and part in words, such as `conv1 backward products`."""
        # Forward is what a name without a pass means.
        named = self.part.only is not None or self.serves is Pass.FORWARD
        return " ".join(filter(None, (self.owner, "" if named else self.serves, self.part.label)))


# Gates and barriers belong to no edge and serve no pass of any.
GATE = Identity(None, Pass.ORDER, Part.GATE)
_BARRIER = Identity(None, Pass.ORDER, Part.BARRIER)


def identities(graph: TaskGraph) -> list[Identity]:
    """Return the identity of each task of a network's graph; TypeError for other graphs."""
    found = []
    for task in graph.tasks:
        what = _BARRIER if task == BARRIER else task
        if not isinstance(what, Identity):
            raise TypeError(f"the task {task.label!r} is of no network")
        found.append(what)
    return found
