"""Tasks of spectra of whole feature maps: transformed once a step and shared by the passes, and back."""

from __future__ import annotations

from collections.abc import Sequence

from znnpy_kernels.fft.images import image_spectra, spectra_images

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Name, Region, Use
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step, combine_flat
from znnpy.engine.tasks.task_identity import Identity
from znnpy.geometry import voxels
from znnpy.layers.types import BARE, BorderName, Sides
from znnpy.network.types import Edge, Triple
from znnpy.plan.cost import TRANSFORM_RATE
from znnpy.plan.fftw import good_size, plan_forward, plan_inverse, spectrum_floats
from znnpy.plan.partition import TARGET_SECONDS, ranges

# Two tasks that write one line would take it from each other.
LINE = 16  # floats: cuts between frequencies fall on cache lines


def grid_of(build: Build, edge: Edge) -> Triple:
    """Return the FFT grid of an edge: the size of what it sees, rounded up to sizes that transform fast."""
    z, y, x = (good_size(size) for size in build.seen(edge).shape)
    return (z, y, x)


def border_of(build: Build, edge: Edge) -> tuple[Sides | BorderName, ...]:
    """Return the padding that an edge sees around its source: nothing without padding."""
    padding = build.layout.padding(edge)
    return () if padding == BARE else (padding, edge.border)


class Spectra:
    """Spectra of a tensor's images on one grid: [batch][image][floats]; `kept` from step to step.

    `border`: what tells images with different voxels round them apart.
    """

    def __init__(
        self,
        build: Build,
        use: Use,
        owner: str,
        count: int,
        grid: Triple,
        *,
        border: tuple[Sides | BorderName, ...] = (),
        kept: bool = False,
    ) -> None:
        self.grid, self.count = grid, count
        self.floats = spectrum_floats(grid)
        # Spectra of filters outlive the step; all others share memory with what is not needed at
        # the same time.
        reserve = build.kept if kept else build.shared
        self.buffer = reserve(Name(use, owner, (grid, *border)), count * self.floats)

    def at(self, index: int, frequency: int = 0) -> int:
        """Return the address of one spectrum, from a float on."""
        return self.buffer.address + 4 * (index * self.floats + frequency)

    def region(self, index: int, low: int = 0, high: int | None = None) -> Region:
        """Return the region of floats low..high of one spectrum."""
        # A spectrum is a section: those of different images never wait for each other.
        return self.buffer.region(low, self.floats if high is None else high, section=index)

    def cuts(self, seconds: float) -> list[tuple[int, int]]:
        """Return ranges of floats of a spectrum, on cache lines, for work of that many seconds."""
        return [(low * LINE, high * LINE) for low, high in ranges(self.floats // LINE, seconds)]


def image_spectra_of(
    step: Step,
    build: Build,
    tensor: Tensor,
    use: Use,
    what: Identity,
    grid: Triple,
    border: tuple[Sides | BorderName, ...] = (),
) -> Spectra:
    """Return the spectra of all images of a tensor; their tasks are declared once a step, for all that ask."""
    assert what.owner is not None
    count = tensor.batch * tensor.channels
    spectra = Spectra(build, use, what.owner, count, grid, border=border)
    # Forward pass and weight gradient, and all edges that leave a node, read the same spectra.
    if not step.once(spectra.buffer):
        return spectra
    plan = plan_forward(grid, tensor.shape)
    for batch in range(tensor.batch):
        for first, count in _channel_runs(tensor, grid):
            block, lane = divmod(first, tensor.lanes)
            index = batch * tensor.channels + first
            step.add(
                image_spectra,
                {
                    "source": tensor.at(batch, block) + 4 * lane,
                    "source_z": tensor.z_stride,
                    "source_y": tensor.y_stride,
                    "source_x": tensor.lanes,
                    "source_channel": 1 if tensor.lanes > 1 else tensor.block_stride,
                    "target": spectra.at(index),
                    "target_channel": spectra.floats,
                    "channels": count,
                    "plan": plan.address,
                },
                what=what,
                cost=count * _transform_seconds(grid),
                reads=[tensor.region(batch, block)],
                writes=[spectra.region(index + c) for c in range(count)],
            )
    return spectra


def images_of_spectra(step: Step, spectra: Spectra, tensor: Tensor, what: Identity) -> None:
    """Declare the inverse transforms of all spectra into a tensor; the spectra are used up."""
    plan = plan_inverse(spectra.grid, tensor.shape)
    for batch in range(tensor.batch):
        for first, count in _channel_runs(tensor, spectra.grid):
            block, lane = divmod(first, tensor.lanes)
            index = batch * tensor.channels + first
            # The task of a block's last channel also clears its idle lanes.
            last = lane + count == tensor.block_channels(block)
            step.add(
                spectra_images,
                {
                    "source": spectra.at(index),
                    "source_channel": spectra.floats,
                    "target": tensor.at(batch, block) + 4 * lane,
                    "target_z": tensor.z_stride,
                    "target_y": tensor.y_stride,
                    "target_x": tensor.lanes,
                    "target_channel": 1 if tensor.lanes > 1 else tensor.block_stride,
                    "channels": count,
                    # Who had this memory before may have left something in these lanes.
                    "pad": tensor.lanes - tensor.block_channels(block) if last else 0,
                    "add": 0,
                    "plan": plan.address,
                },
                what=what,
                cost=count * _transform_seconds(spectra.grid),
                reads=(used := [spectra.region(index + c) for c in range(count)]),
                # Transforms are in place, so the spectra are written, too. Strand by lane: channels
                # of a block are written side by side.
                writes=[*used, tensor.region(batch, block).as_strand(lane)],
            )


def combine_spectra(step: Step, leaves: Sequence[Spectra], what: Identity) -> None:
    """Declare sums of the spectra of converging edges into the first, by a tree of fixed shape for each image."""
    for index in range(leaves[0].count):
        combine_flat(
            step,
            [leaf.at(index) for leaf in leaves],
            [leaf.region(index) for leaf in leaves],
            leaves[0].floats,
            what,
        )


def _channel_runs(tensor: Tensor, grid: Triple) -> list[tuple[int, int]]:
    """Return (first channel, count): as many channels of a block for each task as fill its time."""
    wanted = max(1, round(TARGET_SECONDS / _transform_seconds(grid)))
    runs = []
    for block in range(tensor.blocks):
        channels = tensor.block_channels(block)
        for low in range(0, channels, wanted):
            runs.append((block * tensor.lanes + low, min(wanted, channels - low)))
    return runs


def _transform_seconds(grid: Triple) -> float:
    size = voxels(grid)
    # The bit length stands for the logarithm: cuts into tasks need no more.
    return 2.5 * size * max(1, size.bit_length() - 1) / TRANSFORM_RATE
