"""NumPy arrays over tensors in an arena."""

from __future__ import annotations

import numpy as np

from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.arrays import Floats
from znnpy.engine.memory.tensors import Tensor


def floats_at(arena: Arena, address: int, floats: int) -> Floats:
    """Return a view of so many float32."""
    return arena.view(address, (floats,)).view(np.float32)


def view_of(arena: Arena, tensor: Tensor) -> Floats:
    """Return a view of a tensor: (batch, block, z, y, x, lane), or (batch, channel, z, y, x) if planar."""
    # Strides of the tensor, not of a dense array: there may be a frame between rows, and other
    # blocks between blocks.
    shape = [tensor.batch, tensor.blocks, *tensor.shape]
    strides = [tensor.batch_stride, tensor.block_stride, tensor.z_stride, tensor.y_stride]
    strides.append(tensor.lanes)
    if tensor.lanes > 1:
        shape.append(tensor.lanes)
        strides.append(1)
    # One float to begin at; the strides lead to all others within the tensor's buffer.
    whole = floats_at(arena, tensor.address, 1)
    return np.lib.stride_tricks.as_strided(whole, shape, [4 * stride for stride in strides])


def dense_of(arena: Arena, tensor: Tensor) -> Floats:
    """Return a copy of a tensor, (batch, channel, z, y, x)."""
    view = view_of(arena, tensor)
    if tensor.lanes == 1:
        return view.copy()
    shape = (tensor.batch, tensor.blocks * tensor.lanes, *tensor.shape)
    # (batch, block, z, y, x, lane): lanes go next to their blocks, so that both together count
    # channels.
    planar = np.moveaxis(view, -1, 2).copy().reshape(shape)  # of one voxel it were a view
    # Idle lanes of the last block are left out.
    return np.ascontiguousarray(planar[:, : tensor.channels])
