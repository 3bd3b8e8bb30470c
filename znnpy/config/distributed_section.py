"""The `distributed` section of a config: how several ranks train one network (data parallel)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from znnpy.fields import Bytes, Int, Strict


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
        description="Size of a message, in bytes or as 256KiB (default: 1 MiB; multicolor: 256 KiB).",
    )
    shared_memory: bool = Field(
        default=True,
        description="true: ranks of one host read each other's gradients and weights in shared memory (tree and "
        "multicolor) instead of sending messages.",
    )
