"""Weight gradients of layers whose output images have one voxel: outer products, added over samples.

Of a single sample, of dilated filters and of images with frames: others are rows (`rows.py`). Slabs, one for each
sample, would take ten times as long for 8 samples of 64 -> 64 images and dilated 3^3 filters.
"""

from __future__ import annotations

from math import prod

from znnpy_kernels.direct.outer import AT, TOGETHER, outer_weight_gradient
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.direct.correlation import blocks_of, source_words
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.parameters import Piece
from znnpy.engine.memory.regions import Region
from znnpy.engine.memory.tensors import Tensor, source_range
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step
from znnpy.network.types import Edge
from znnpy.plan import ranges
from znnpy.plan.algorithms.direct import DIRECT_RATE


def is_outer(source: Tensor, gradient: Tensor) -> bool:
    """Whether every tap meets one voxel of each sample, in blocks of images."""
    return prod(gradient.shape) == 1 and source.lanes == gradient.lanes == LANES


def sample_groups(samples: int) -> list[range]:
    """Samples that a task adds: the nodes of one level of the tree over all."""
    starts = range(0, samples, TOGETHER)
    return [range(first, min(first + TOGETHER, samples)) for first in starts]


def outer_products(
    step: Step,
    build: Build,
    edge: Edge,
    factors: tuple[Tensor, Tensor],
    piece: Piece,
    samples: range,
    place: int,
    region: Region,
) -> None:
    """What some samples add to one piece, by ranges of tap rows."""
    source, gradient = factors
    dilation = build.layout.geometry.dilations[edge.name]
    wide = source_range(edge, dilation, gradient.cut, 0, 1)
    source_block, block = piece.first_input // LANES, piece.first_output // LANES
    vectors, rows = piece.width // LANES, edge.size[0] * edge.size[1]
    seconds = 2.0 * piece.floats * len(samples) / DIRECT_RATE
    words = source_words(source, edge.stride, edge.size, dilation)
    for first, last in ranges(rows, seconds):
        step.add(
            outer_weight_gradient,
            {
                **{word: value for word, value in words.items() if word in AT._fields},
                "source": source.at(samples.start, source_block),
                "source_batch": source.batch_stride,
                "channels": piece.inputs,
                "tap_row0": first,
                "tap_row1": last,
                "gradient": gradient.at(samples.start, block),
                "gradient_block": gradient.block_stride,
                "gradient_batch": gradient.batch_stride,
                "outputs": vectors,
                "samples": len(samples),
                "target": place,
            },
            what=Identity(edge.name, Pass.WEIGHT, Part.DIRECT),
            cost=seconds * (last - first) / rows,
            reads=[
                *(source.region(sample, source_block, *wide) for sample in samples),
                *(
                    own
                    for sample in samples
                    for own in blocks_of(gradient, sample, block, vectors, 0, 1)
                ),
            ],
            writes=[region._replace(strand=first)],
        )
