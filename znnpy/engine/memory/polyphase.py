"""Images taken apart into the phases of a stride, as views: nothing is copied."""

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
    """Every `apart`-th voxel of `whole`, from its voxel `first` on."""

    whole: Tensor | None = None
    first: Triple = (0, 0, 0)
    apart: Triple = (1, 1, 1)

    @property
    def x_stride(self) -> int:
        """Floats from voxel to voxel of a row."""
        return self.lanes * self.apart[2]

    def region(self, batch: int, block: int, low: int = 0, high: int | None = None) -> Region:
        """Planes of the whole images from that of plane `low` to that of plane `high` - 1."""
        assert self.whole is not None
        first, apart = self.first[self.cut], self.apart[self.cut]
        last = (self.extent if high is None else high) - 1
        return self.whole.region(batch, block, first + low * apart, first + last * apart + 1)


@dataclass(frozen=True)
class Phased:
    """The phases of a tensor that filters meet, as images one behind the other.

    Each begins with a block of its own: `images` counts the lanes that are left idle as well.
    """

    parts: tuple[Tensor, ...]

    @property
    def lanes(self) -> int:
        """As in `Tensor`."""
        return self.parts[0].lanes

    @property
    def channels(self) -> int:
        """Of all phases."""
        return len(self.parts) * -(-self.parts[0].channels // LANES) * LANES


Views = Tensor | Phased
"""Images that tiles are cut from, or brought back to: those of a tensor, or its phases."""


def phased(tensor: Tensor, phases: Phases) -> Views:
    """The phases of a tensor; itself where it is the only one."""
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
    """Voxels of a phase before the voxel `end`."""
    z, y, x = (max(0, -(-(n - f) // a)) for n, f, a in zip(end, first, apart, strict=True))
    return z, y, x


def _beyond(whole: Tensor, first: Triple, apart: Triple) -> Sides:
    """Voxels of a phase that lie outside the images."""
    last = tuple(n - after for n, (_, after) in zip(whole.shape, whole.beyond, strict=True))
    before = _points(firsts(whole.beyond), first, apart)
    inside, end = (_points(last, first, apart), _points(whole.shape, first, apart))
    z, y, x = ((b, n - m) for b, n, m in zip(before, end, inside, strict=True))
    return z, y, x
