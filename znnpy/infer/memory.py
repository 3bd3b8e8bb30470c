"""Estimates the memory of a prediction: the process, the engine, and blocks that are read and written."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import psutil

from znnpy.data.process_memory import total_memory
from znnpy.data.volume import Triple
from znnpy.infer.blocks import Field, Region, input_region
from znnpy.infer.patch_search import Candidate, counted_workers
from znnpy.infer.tiling import AnyGrid, Tiling

# Too small: a process takes more than its limit. Too large: patches are smaller than they could be.
LOADING = 224 << 20  # kernels to be compiled or loaded, libraries that are not loaded yet, stacks
# Unless told otherwise, a prediction takes at most this part of the memory of the machine or control group:
# the rest is for others, and twice the memory gains 2 % of time or less.
USUAL_SHARE = 0.5
# Larger wastes more of the limit; smaller lets two runs of one command choose different patches.
GRAIN = 64 << 20  # what the process takes already is rounded up to it, so that it decides no patch
INPUTS = 3  # blocks of input at once: computed from, being read, and its mirrored copy
OUTPUTS = 3  # blocks of output at once: being computed, being written, and a copy
COPIES = 5  # of a patch's output values: from the engine, finished, averaged, encoded


@dataclass(frozen=True)
class Sizes:
    """The quantities that buffer sizes depend on, beside the patch.

    `stored`: bytes of all channels of one voxel by input node; `written`: bytes of all channels of one
    output voxel of all outputs, which have `channels` in all. `masked`: whether a mask is read.
    """

    tiling: Tiling
    field: Field
    stored: dict[str, int]
    written: int
    channels: int
    masked: bool

    def grid(self, candidate: Candidate) -> AnyGrid:
        """Return the grid on which patches of a candidate lie."""
        return self.tiling.grid(self.field, candidate.geometry)

    @property
    def kept(self) -> int:
        """The bytes of one output voxel of a patch that is remembered."""
        return self.written if self.tiling.window is None else 4 * self.channels


def rss() -> int:
    """Return the bytes that the process takes now (resident set size)."""
    return int(psutil.Process().memory_info().rss)


def process_bytes() -> int:
    """Return what the process takes beside a prediction's own buffers, in bytes."""
    # Rounded up, never down: the limit holds for the whole process.
    return -(-rss() // GRAIN) * GRAIN + LOADING


def needed_bytes(sizes: Sizes, candidate: Candidate, block: Triple, kept: int = 0) -> int:
    """Return the peak bytes of engine and buffers for blocks that may begin at any voxel."""
    engine = candidate.bytes(counted_workers())
    buffers = _patch(candidate, kept, sizes) + block_bytes(sizes, candidate, block)
    return engine + buffers


def default_limit(base: int) -> int:
    """Return the bytes that a process which takes `base` (`process_bytes`) may take in all unless told otherwise.

    The room for a prediction's own buffers depends on the machine's memory or the control group's limit
    alone, not on what is free at the moment: it decides the patch, and with it how values round.
    """
    # What the process takes already is added, so that it cancels out of the room for buffers.
    return base - LOADING + int(total_memory() * USUAL_SHARE)


def local_processes(where: str | None) -> int:
    """Return how many processes on this machine share its cores and memory."""
    kind, _, count = (where or "").partition(":")
    return max(1, int(count)) if kind == "local" and count.isdecimal() else 1


def _patch(candidate: Candidate, kept: int, sizes: Sizes) -> int:
    nodes, network = candidate.geometry.nodes, candidate.network
    given = sum(4 * n.channels * prod(nodes[n.name].shape) for n in network.inputs)
    made = sum(4 * n.channels * prod(nodes[n.name].shape) for n in network.outputs)
    # float32 weights, and the float64 product they are made from.
    weight = 12 if sizes.grid(candidate).blends else 0  # of a voxel, and on the way to it
    return 2 * given + COPIES * made + (kept * sizes.kept + weight) * prod(candidate.patch)


def block_bytes(sizes: Sizes, candidate: Candidate, block: Triple) -> int:
    """Return the bytes read for, and written of, the blocks under way."""
    grid, read, geometry = sizes.grid(candidate), 0, candidate.geometry
    span = Region((0, 0, 0), grid.widest(block))
    for name, item in sizes.stored.items():
        seen = input_region(sizes.field, geometry, name, span, grid.size)
        read += seen.voxels * (item * INPUTS + 1)
    # Sums of all channels and of weights, products on the way to them.
    blended = 4 * (2 * sizes.channels + 2) * prod(block) if grid.blends else 0
    mask = 4 * prod(block) * prod(sizes.field.stride) if sizes.masked else 0
    return read + OUTPUTS * sizes.written * prod(block) + blended + mask
