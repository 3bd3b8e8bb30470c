"""Views of a tensor by the phases of a stride (every s-th voxel), which make strided convolutions into dense ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.regions import Region
from znnpy.engine.memory.tensors import Tensor, firsts
from znnpy.layers.types import Sides
from znnpy.network.types import Triple
from znnpy.plan.polyphase import Phases


@dataclass(frozen=True)
class Phase(Tensor):
    """A view of every `apart`-th voxel of `whole`, from its voxel `first` on."""

    whole: Tensor | None = None
    first: Triple = (0, 0, 0)
    apart: Triple = (1, 1, 1)

    @property
    def x_stride(self) -> int:
        """The distance of neighbouring voxels of a row, in floats."""
        return self.lanes * self.apart[2]

    def region(
        self,
        batch: int,
        block: int,
        low: int = 0,
        high: int | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> Region:
        """Return the region of the whole tensor that planes low..high of the phase lie in, with all their rows."""
        assert self.whole is not None
        begin, apart = self.first[self.cut], self.apart[self.cut]
        end = (self.extent if high is None else high) - 1
        # A range of the whole tensor's planes: phases of one plane touch different voxels of it,
        # but order is kept by planes.
        return self.whole.region(batch, block, begin + low * apart, begin + end * apart + 1)


@dataclass(frozen=True)
class Phased:
    """The phases of a tensor as one tensor with more channels: those of one phase after those of another.

    Each phase begins with a block of its own: `channels` counts the lanes that are idle as well.
    """

    parts: tuple[Tensor, ...]

    @property
    def lanes(self) -> int:
        """Channels that lie side by side, as in `Tensor`."""
        return self.parts[0].lanes

    @property
    def channels(self) -> int:
        """Channels of all phases, idle lanes included."""
        # Each phase begins with a vector of its own, so that kernels find whole vectors.
        return len(self.parts) * -(-self.parts[0].channels // LANES) * LANES


Views = Tensor | Phased
"""What tiles are read from or written to: a tensor, or its phases."""


def phased(tensor: Tensor, phases: Phases) -> Views:
    """Return the phases of a tensor; the tensor itself if there is only one."""
    if not phases.split:
        return tensor
    voxels = map(phases.voxel, phases.firsts())
    return Phased(tuple(_phase(tensor, voxel, phases.stride) for voxel in voxels))


def _phase(whole: Tensor, first: Triple, apart: Triple) -> Phase:
    own = {field.name: getattr(whole, field.name) for field in fields(Tensor)}
    own |= {
        "address": whole.at(0, 0, *first),
        "shape": _points(whole.shape, first, apart),
        "z_stride": whole.z_stride * apart[0],
        "y_stride": whole.y_stride * apart[1],
        "beyond": _beyond(whole, first, apart),
    }
    return Phase(**own, whole=whole, first=first, apart=apart)


def _points(end: Sequence[int], first: Triple, apart: Triple) -> Triple:
    """Return how many voxels of a phase lie before the voxel `end`, along z, y, x."""
    # Voxels first, first + apart ... below the end; none where the phase begins beyond it.
    z, y, x = (max(0, -(-(n - f) // a)) for n, f, a in zip(end, first, apart, strict=True))
    return z, y, x


def _beyond(whole: Tensor, first: Triple, apart: Triple) -> Sides:
    """Return how many voxels of a phase lie in the padding, before and after, z y x."""
    last = tuple(n - after for n, (_, after) in zip(whole.shape, whole.beyond, strict=True))
    before = _points(firsts(whole.beyond), first, apart)
    inside, end = (_points(last, first, apart), _points(whole.shape, first, apart))
    z, y, x = ((b, n - m) for b, n, m in zip(before, end, inside, strict=True))
    return z, y, x
