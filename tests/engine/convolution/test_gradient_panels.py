"""Panels of weight gradients: each filter in one of them, all of a panel in a row."""

from itertools import product

import pytest
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.winograd.gradient_panels import panels_of, shared_panels
from znnpy.engine.memory.parameters import Piece
from znnpy.plan.algorithms.winograd_gradients import joint_panels

SIZES = [(3, 3, 3), (1, 3, 3), (3, 1, 1)]


def pieces_of(blocks, outputs):
    """By pairs of blocks of outputs, of which the last may be a single one, then by blocks of inputs."""
    widths = [2 * LANES] * (outputs // 2) + [LANES] * (outputs % 2)
    return [
        Piece(0, 0, 2 * number * LANES, width, block * LANES, LANES)
        for number, width in enumerate(widths)
        for block in range(blocks)
    ]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wanted", [1, 2, 5, 64])
@pytest.mark.parametrize(("blocks", "outputs"), [(1, 1), (1, 7), (4, 4), (5, 20), (20, 3), (40, 9)])
def test_panels_have_each_piece_once(size, wanted, blocks, outputs):
    pieces, pairs = pieces_of(blocks, outputs), -(-outputs // 2)
    parts, together = shared_panels(joint_panels(size, blocks, LANES), blocks, pairs, wanted)
    found = panels_of(pieces, blocks, parts, together)
    assert [piece for panel in found for piece in panel.pieces] == list(range(len(pieces)))
    assert len(found) >= min(wanted, pairs * blocks)
    seen = set()
    for panel in found:
        # Those that its blocks of inputs and outputs name.
        own = {
            target // 2 * blocks + source
            for source, target in product(panel.sources, panel.targets)
        }
        assert own == set(panel.pieces)
        seen |= set(product(panel.sources, panel.targets))
    assert len(seen) == blocks * outputs
