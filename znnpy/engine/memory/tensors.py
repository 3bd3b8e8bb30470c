"""`Tensor`: address, shape and strides of a feature map or its gradient in the arena, and the regions of its planes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.arena import Memory
from znnpy.engine.memory.regions import Buffer, Filled, Name, Region
from znnpy.geometry import voxels
from znnpy.layers.types import BARE, Sides
from znnpy.network.types import Edge, Triple


class Planes(NamedTuple):
    """Planes low..high along the cut axis, with all their rows along x, or rows first..last of each."""

    low: int
    high: int
    first: int = 0
    last: int | None = None


@dataclass(frozen=True)
class Tensor:
    """A float32 feature map laid out [channel block][batch][z][y][x][lane]; strides count floats.

    `address`: of the first voxel. `frame`: padding around it in the same memory, which only the tasks of
    `engine.convolution.padding` write; zeros from the start if the memory is the tensor's own. `lanes`: LANES, or 1
    if planar. Lanes beyond `channels` hold zeros. `beyond`: how much of `shape` is padding, if this is a view that
    includes it. `first_block`: which blocks of the buffer these are, if others lie in it too; `units`: rows of each in
    regions, without padding; `sections`: how many a sample has in regions, one or one for each block of the buffer.
    """

    address: int
    batch: int
    channels: int
    shape: Triple
    lanes: int
    batch_stride: int
    block_stride: int
    z_stride: int
    y_stride: int
    buffer: Buffer
    cut: int
    frame: Sides = BARE
    beyond: Sides = BARE
    first_block: int = 0
    units: int = 0
    sections: int = 1

    @property
    def x_stride(self) -> int:
        """The distance of neighbouring voxels of a row, in floats."""
        return self.lanes

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """The tensor itself; `Phased` has one part for each phase."""
        return (self,)

    @property
    def blocks(self) -> int:
        """Number of channel blocks."""
        return -(-self.channels // self.lanes)

    def block_channels(self, block: int) -> int:
        """Return the number of real channels in a block; its other lanes hold zeros."""
        return min(self.lanes, self.channels - block * self.lanes)

    def at(self, batch: int, block: int = 0, z: int = 0, y: int = 0, x: int = 0) -> int:
        """Return the address of a voxel's first lane."""
        offset = batch * self.batch_stride + block * self.block_stride
        return self.address + 4 * (
            offset + z * self.z_stride + y * self.y_stride + x * self.x_stride
        )

    def box(
        self, low: int, high: int, first: int = 0, last: int | None = None
    ) -> tuple[int, int, int, int]:
        """Return z0, z1, y0, y1 of planes low..high along the cut axis, or of rows first..last of them."""
        end = self.rows if last is None else last
        return (low, high, first, end) if self.cut == 0 else (first, end, low, high)

    @property
    def extent(self) -> int:
        """Number of planes along the cut axis."""
        return self.shape[self.cut]

    @property
    def rows(self) -> int:
        """Rows along x of one plane across the cut axis."""
        return self.shape[1 - self.cut]

    @property
    def row(self) -> int:
        """Floats of one row, padding excluded."""
        return self.shape[2] * self.lanes

    @property
    def plane(self) -> int:
        """Floats of one plane across the cut axis, of one block, padding excluded."""
        return self.rows * self.row

    def region(
        self,
        batch: int,
        block: int,
        low: int = 0,
        high: int | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> Region:
        """Return the region of planes low..high of one block, along the cut axis; of one plane, of rows first..last.

        Padding belongs to the outermost plane. Ranges count rows: of a section for each block its own, else those of a
        sample's blocks one behind the other.
        """
        place = self.first_block + block
        alone = self.sections > 1
        start, section = (
            (0, batch * self.sections + place) if alone else (place * self.units, batch)
        )
        # Nearly all tensors, and large networks have millions of regions.
        if self.beyond == BARE:
            rows, extent = self.shape[1 - self.cut], self.shape[self.cut]
            # What lies beyond the planes would be the next block's.
            end = rows * (extent if high is None or high > extent else high)
            behind = 0 if last is None else rows - last
            return Region(self.buffer, start + low * rows + first, start + end - behind, section)
        before, after = self.beyond[self.cut]
        inside, end = self.extent - before - after, self.extent if high is None else high
        # Planes of the frame are written together with the outermost planes, so a view that begins
        # in the frame declares those.
        if before or after:
            low, end = min(max(low - before, 0), inside - 1), max(min(end - before, inside), 1)
        rows = self.rows - sum(self.beyond[1 - self.cut])
        end = min(end, inside)
        behind = 0 if last is None else rows - last
        return Region(self.buffer, start + low * rows + first, start + end * rows - behind, section)

    def part(self, first: int, channels: int) -> Tensor:
        """Return a view of `channels` channels from block `first` on."""
        address, before = self.at(0, first), self.first_block + first
        # Same buffer, other blocks: regions of a part and of the whole meet where their memory
        # does.
        return replace(self, address=address, channels=channels, first_block=before)

    def lies_in(self, whole: Tensor, block: int | None) -> bool:
        """Return whether this is the part of another tensor from a block on, in the same memory."""
        return block is not None and self == whole.part(block, self.channels)

    def framed(self, sides: Sides) -> Tensor:
        """Return a view that includes the voxels around; the caller must know that they exist."""
        z, y, x = firsts(sides)
        address = self.at(0, 0, -z, -y, -x)
        return replace(self, address=address, shape=grown(self.shape, sides), beyond=sides)

    def met(
        self,
        batch: int,
        block: int,
        low: int = 0,
        high: int | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> list[Region]:
        """Return all regions that planes low..high of one block, or rows first..last of them, lie in."""
        if last is None or high is None:
            return [self.region(batch, block, low, high)]
        before, after = self.beyond[1 - self.cut]
        inside = self.rows - before - after
        # Rows of the frame are written together with the outermost rows.
        first, last = min(max(first - before, 0), inside - 1), max(min(last - before, inside), 1)
        if last - first == inside:
            return [self.region(batch, block, low, high)]
        rows = (self.region(batch, block, z, z + 1, first, last) for z in range(low, high))
        return list(dict.fromkeys(rows))

    def regions(
        self,
        batch: int,
        low: int = 0,
        high: int | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> list[Region]:
        """Return the regions of planes low..high, or of rows first..last of them, in all blocks of one sample."""
        return self.met_by(batch, range(self.blocks), low, high, first, last)

    def met_by(
        self,
        batch: int,
        blocks: range,
        low: int = 0,
        high: int | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> list[Region]:
        """Return the regions of planes low..high, or of rows first..last of them, of some blocks: one of whole ones."""
        one, *more = self.met(batch, blocks.start, low, high, first, last)
        if self.sections == 1 and not more and one.high - one.low == self.units:
            return [Region(one.buffer, one.low, one.low + len(blocks) * self.units, one.section)]
        others = (self.met(batch, block, low, high, first, last) for block in blocks[1:])
        return [one, *more, *(region for regions in others for region in regions)]


@dataclass(frozen=True)
class Row(Tensor):
    """A batch seen as planes of one row each: `each` samples of `whole`, one behind the other."""

    whole: Tensor | None = None
    each: int = 0

    def met(
        self,
        batch: int,
        block: int,
        low: int = 0,
        high: int | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> list[Region]:
        """Return the regions of all samples in planes low..high, which have one row each."""
        assert self.whole is not None
        samples = range(low * self.each, (self.extent if high is None else high) * self.each)
        return [self.whole.region(sample, block) for sample in samples]


# Samples of a row at least, if there are so many: filters are read once for about half of them.
ROW_SAMPLES = 28


def is_dense(tensor: Tensor) -> bool:
    """Return whether the samples of a blocked tensor lie one behind the other with nothing between."""
    return tensor.lanes == LANES and tensor.batch_stride == voxels(tensor.shape) * LANES


def in_rows(tensor: Tensor, least: int = ROW_SAMPLES) -> Row:
    """Return a dense tensor as rows of equally many samples, at least so many where possible."""
    # Rows must be equally long, so the number of rows divides the batch.
    most = max(1, tensor.batch // least)
    rows = next(count for count in range(most, 0, -1) if tensor.batch % count == 0)
    each = tensor.batch // rows
    # A row is the voxels of `each` samples, one after the other, as planes of height 1.
    width = each * voxels(tensor.shape)
    return Row(
        tensor.address, 1, tensor.channels, (rows, 1, width), LANES, tensor.batch * tensor.batch_stride,
        tensor.block_stride, width * LANES, width * LANES, tensor.buffer, 0, whole=tensor, each=each,
    )  # fmt: skip


def new_tensor(
    memory: Memory | None,
    name: Name,
    batch: int,
    channels: int,
    shape: Triple,
    *,
    cut: int,
    lanes: int = LANES,
    frame: Sides = BARE,
    shared: bool = False,
    filled: Filled = Filled.STEP,
    apart: bool = False,
) -> Tensor:
    """Reserve a tensor; without memory one that has a shape alone, which no task touches.

    `frame`: padding around it in memory. `cut`: the axis along which its regions count planes. `shared`: the memory
    may serve other buffers before and after it. `apart`: blocks are sections of their own, where tasks touch single
    ones; else one region says what is touched of many.
    """
    depth, height, width = grown(shape, frame)
    # [block][batch][z][y][x][lane]: the samples of a block lie one behind the other, so that a
    # fully connected layer can take them as a row (docs/design/convolution.md).
    y_stride = width * lanes
    z_stride = height * y_stride
    batch_stride = depth * z_stride
    block_stride = batch * batch_stride
    blocks = -(-channels // lanes)
    floats = blocks * block_stride
    buffer = memory.buffer(name, floats, shared=shared, filled=filled) if memory else Buffer(name)
    first = frame[0][0] * z_stride + frame[1][0] * y_stride + frame[2][0] * lanes
    return Tensor(
        buffer.address + 4 * first, batch, channels, shape, lanes, batch_stride, block_stride, z_stride, y_stride,
        buffer, cut, frame, units=shape[0] * shape[1], sections=blocks if apart else 1,
    )  # fmt: skip


def firsts(sides: Sides) -> Triple:
    """Return the padding before, (z, y, x)."""
    (z, _), (y, _), (x, _) = sides
    return z, y, x


def grown(shape: Triple, sides: Sides) -> Triple:
    """Return a shape with padding added on its sides."""
    z, y, x = (before + size + after for size, (before, after) in zip(shape, sides, strict=True))
    return z, y, x


def dense_floats(batch: int, channels: int, shape: Triple) -> int:
    """Return the number of floats of a planar array (batch, channel, z, y, x)."""
    return batch * channels * voxels(shape)


def source_range(edge: Edge, dilation: Triple, cut: int, low: int, high: int) -> tuple[int, int]:
    """Return the planes of the source, along the cut axis, that planes low..high of the target read."""
    reach = (edge.size[cut] - 1) * dilation[cut]
    # Counted in the source with its padding, where tap 0 of voxel 0 reads voxel 0.
    return low * edge.stride[cut], (high - 1) * edge.stride[cut] + reach + 1


def met_range(edge: Edge, dilation: Triple, target: Tensor, low: int, high: int) -> tuple[int, int]:
    """Return the planes of the target, along the cut axis, that read any of planes low..high of the source."""
    cut = target.cut
    reach = (edge.size[cut] - 1) * dilation[cut]
    first = max(0, -(-(low - reach) // edge.stride[cut]))
    return first, max(first, min(target.extent, (high - 1) // edge.stride[cut] + 1))
