"""The `distributed` section: how several ranks train together."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from znnpy.fields import Bytes, Int, Strict


class DistributedSection(Strict):
    """Training over ranks; with one nothing here matters."""

    strategy: Literal["auto", "tree", "multicolor", "allreduce", "blocking"] = Field(
        default="auto",
        description="How gradients are added up over ranks. tree: to rank 0, which sends weights back; "
        "multicolor: over several trees, sums go back; both make the bits of one process, and auto takes the one "
        "that a short measurement at the start favours. allreduce, blocking: by the MPI library, in its order.",
    )
    colors: Annotated[Int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="Trees of multicolor (default: 8)."
    )
    chunk: Bytes | None = Field(
        default=None,
        description="Bytes of a message, in bytes or as 256KiB (default: 1 MiB, of multicolor 256 KiB).",
    )
    shared_memory: bool = Field(
        default=True,
        description="Ranks of one host read each other's gradients and weights where they are (tree and "
        "multicolor), instead of sending them.",
    )
