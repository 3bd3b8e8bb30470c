"""Blocks of an output: how many, and that they are worth what each costs."""

from __future__ import annotations

import numpy as np
import pytest

from znnpy.data.writing.block_output import OutputSpec
from znnpy.errors import VolumeError


@pytest.mark.parametrize("phase", [(0, 0, 0), (3, 14, 6), (131, 14, 6)])
def test_many_tiny_blocks_are_refused(phase: tuple[int, int, int]) -> None:
    """Each is synced by itself, in a file of its own even: a command of hours that nobody meant."""
    shape, kind = (2, 480, 480, 480), np.dtype("u1")
    with pytest.raises(VolumeError, match=r"blocks of \(16, 16, 15\) voxels .* into [23].,...,"):
        OutputSpec(shape, kind, (16, 16, 15), phase=phase)
    large = OutputSpec((1, 480, 480, 480), kind, (16, 16, 16), phase=phase)
    assert len(large.blocks()) >= 30**3
    assert len(OutputSpec((1, 27, 27, 27), kind, (1, 1, 1), phase=phase).blocks()) == 27**3
