"""Where the voxels of a node's images, or of their gradients, lie in the arena."""

from __future__ import annotations

from dataclasses import dataclass, replace

from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.arena import Memory
from znnpy.engine.memory.regions import Buffer, Filled, Name, Region
from znnpy.geometry import voxels
from znnpy.layers.types import BARE, Sides
from znnpy.network.types import Edge, Triple


@dataclass(frozen=True)
class Tensor:
    """Float32 images laid out [channel block][batch][z][y][x][lane]; strides count floats.

    `address` is that of the first voxel. `frame`: voxels round the images in the same memory, which only
    frame tasks write (`engine.convolution.frames`): zeros from the start where the memory is the tensor's own.
    `lanes` is LANES, or 1 for planar images. Lanes beyond `images` hold zeros. `beyond`: how much of `shape`
    lies outside the images, where this is a view of them and what surrounds them. `first_block` and
    `all_blocks`: which blocks of a buffer's they are, where others lie in it too.
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
    all_blocks: int = 0

    @property
    def x_stride(self) -> int:
        """Floats from voxel to voxel of a row."""
        return self.lanes

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """Itself, where tiles of several views of images may be asked for (`phases`)."""
        return (self,)

    @property
    def blocks(self) -> int:
        """Number of channel blocks."""
        return -(-self.channels // self.lanes)

    def block_channels(self, block: int) -> int:
        """Real channels in one block; the others are padding."""
        return min(self.lanes, self.channels - block * self.lanes)

    def at(self, batch: int, block: int = 0, z: int = 0, y: int = 0, x: int = 0) -> int:
        """Address of a voxel's first lane."""
        offset = batch * self.batch_stride + block * self.block_stride
        return self.address + 4 * (
            offset + z * self.z_stride + y * self.y_stride + x * self.x_stride
        )

    def box(self, low: int, high: int) -> tuple[int, int, int, int]:
        """z0, z1, y0, y1 of planes low..high along the cut axis."""
        if self.cut == 0:
            return low, high, 0, self.shape[1]
        return 0, self.shape[0], low, high

    @property
    def extent(self) -> int:
        """Planes along the cut axis."""
        return self.shape[self.cut]

    @property
    def row(self) -> int:
        """Floats of one row, frame excluded."""
        return self.shape[2] * self.lanes

    def region(self, batch: int, block: int, low: int = 0, high: int | None = None) -> Region:
        """Planes low..high along the cut axis of one block, for the dependency tracker.

        What lies outside the images belongs to their outermost plane.
        """
        section = batch * self.all_blocks + self.first_block + block
        before, after = self.beyond[self.cut]
        last, end = self.extent - before - after, self.extent if high is None else high
        if before or after:
            low, end = min(max(low - before, 0), last - 1), max(min(end - before, last), 1)
        return Region(self.buffer, low, end, section)

    def part(self, first: int, channels: int) -> Tensor:
        """The images of some blocks alone, from block `first` on."""
        address, before = self.at(0, first), self.first_block + first
        return replace(self, address=address, channels=channels, first_block=before)

    def lies_in(self, whole: Tensor, block: int | None) -> bool:
        """Whether these are images of another tensor from a block on, in the same memory."""
        return block is not None and self == whole.part(block, self.channels)

    def framed(self, sides: Sides) -> Tensor:
        """A view of the images and voxels around them; who reads or writes it must know which are there."""
        z, y, x = firsts(sides)
        address = self.at(0, 0, -z, -y, -x)
        return replace(self, address=address, shape=grown(self.shape, sides), beyond=sides)

    def met(self, batch: int, block: int, low: int = 0, high: int | None = None) -> list[Region]:
        """All regions that planes low..high of one block are of."""
        return [self.region(batch, block, low, high)]

    def regions(self, batch: int, low: int = 0, high: int | None = None) -> list[Region]:
        """The same planes of all blocks of one image of the batch."""
        found = (self.met(batch, block, low, high) for block in range(self.blocks))
        return [region for regions in found for region in regions]


@dataclass(frozen=True)
class Row(Tensor):
    """The images of a whole batch as planes of one row each: `each` samples of `whole`, one behind the other."""

    whole: Tensor | None = None
    each: int = 0

    def met(self, batch: int, block: int, low: int = 0, high: int | None = None) -> list[Region]:
        """The regions of all samples in planes low..high."""
        assert self.whole is not None
        samples = range(low * self.each, (self.extent if high is None else high) * self.each)
        return [self.whole.region(sample, block) for sample in samples]


ROW_SAMPLES = (
    28  # of a row at least, if there are so many: filters are read once for about half of them
)


def is_dense(tensor: Tensor) -> bool:
    """Whether the samples of a blocked tensor lie one behind the other with nothing between."""
    return tensor.lanes == LANES and tensor.batch_stride == voxels(tensor.shape) * LANES


def in_rows(tensor: Tensor) -> Row:
    """A dense tensor as rows of samples, all of as many."""
    most = max(1, tensor.batch // ROW_SAMPLES)
    rows = next(count for count in range(most, 0, -1) if tensor.batch % count == 0)
    each = tensor.batch // rows
    width = each * voxels(tensor.shape)
    return Row(
        tensor.address, 1, tensor.channels, (rows, 1, width), LANES, tensor.batch * tensor.batch_stride,
        tensor.block_stride, width * LANES, width * LANES, tensor.buffer, 0, whole=tensor, each=each,
    )  # fmt: skip


def new_tensor(
    memory: Memory,
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
) -> Tensor:
    """Reserve a tensor.

    `frame`: voxels around the images. `cut`: the axis of its ranges. `shared`: the memory may serve others
    before and after it is used.
    """
    depth, height, width = grown(shape, frame)
    y_stride = width * lanes
    z_stride = height * y_stride
    batch_stride = depth * z_stride
    block_stride = batch * batch_stride
    floats = -(-channels // lanes) * block_stride
    buffer = memory.buffer(name, floats, shared=shared, filled=filled)
    first = frame[0][0] * z_stride + frame[1][0] * y_stride + frame[2][0] * lanes
    return Tensor(
        buffer.address + 4 * first, batch, channels, shape, lanes, batch_stride, block_stride, z_stride, y_stride,
        buffer, cut, frame, all_blocks=-(-channels // lanes),
    )  # fmt: skip


def firsts(sides: Sides) -> Triple:
    """What lies before an image."""
    (z, _), (y, _), (x, _) = sides
    return z, y, x


def grown(shape: Triple, sides: Sides) -> Triple:
    """A shape with what lies on its sides."""
    z, y, x = (before + size + after for size, (before, after) in zip(shape, sides, strict=True))
    return z, y, x


def dense_floats(batch: int, channels: int, shape: Triple) -> int:
    """Floats of a planar array (batch, channel, z, y, x)."""
    return batch * channels * voxels(shape)


def source_range(edge: Edge, dilation: Triple, cut: int, low: int, high: int) -> tuple[int, int]:
    """Planes of the source, along the cut axis, that planes low..high of the target read."""
    reach = (edge.size[cut] - 1) * dilation[cut]
    return low * edge.stride[cut], (high - 1) * edge.stride[cut] + reach + 1


def met_range(edge: Edge, dilation: Triple, target: Tensor, low: int, high: int) -> tuple[int, int]:
    """Planes of the target, along the cut axis, that read any of planes low..high of the source."""
    cut = target.cut
    reach = (edge.size[cut] - 1) * dilation[cut]
    first = max(0, -(-(low - reach) // edge.stride[cut]))
    return first, max(first, min(target.extent, (high - 1) // edge.stride[cut] + 1))
