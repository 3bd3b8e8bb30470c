"""The buffers of the taps that won maxima: argument words and regions, for who writes and who reads them."""

from __future__ import annotations

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Buffer, Name, Region, Use
from znnpy.engine.memory.tensors import Planes, Tensor
from znnpy.engine.memory.winners import is_pair_filter
from znnpy.network.types import Edge

TAPS = Use("taps of maxima")


def _taps(build: Build, edge: Edge, target: Tensor) -> Buffer:
    """Return the buffer of winning taps: one or two bytes for each output, dense; regions count rows of a block."""
    lanes = target.batch * target.blocks * target.shape[0] * target.shape[1] * target.row
    # Buffers count floats; one more for what the division drops.
    return build.shared(Name(TAPS, edge.name), lanes * _tap_bytes(edge) // 4 + 1)


def taps_met(
    build: Build, edge: Edge, target: Tensor, batch: int, block: int, planes: Planes
) -> list[Region]:
    """Return the regions of the taps of some planes, or of rows of them."""
    taps, section, rows = _taps(build, edge, target), batch * target.blocks + block, target.rows
    low, high, first, last = planes
    if last is None:
        return [taps.region(low * rows, high * rows, section=section)]
    starts = range(low * rows, high * rows, rows)
    return [taps.region(start + first, start + last, section=section) for start in starts]


def _tap_bytes(edge: Edge) -> int:
    # At most 2^3 taps fit a byte; other windows may have more than 256.
    return 1 if is_pair_filter(edge) else 2


def taps_words(
    build: Build, edge: Edge, target: Tensor, batch: int, block: int, planes: Planes
) -> dict[str, float]:
    """Return the words `index`, `index_z`, `index_y` of the winning taps of some planes, or of rows of them."""
    # Taps lie densely, [sample][block][z][y][x][lane], without the frame that values may have.
    y_stride = target.row
    z_stride = target.shape[1] * y_stride
    whole = target.shape[0] * z_stride
    z, _, y, _ = target.box(*planes)
    offset = (batch * target.blocks + block) * whole + z * z_stride + y * y_stride
    # Strides count taps, addresses bytes.
    first = _taps(build, edge, target).address + _tap_bytes(edge) * offset
    return {"index": first, "index_z": z_stride, "index_y": y_stride}
