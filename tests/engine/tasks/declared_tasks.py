"""Tasks that touch named regions and do nothing."""

from znnpy_kernels.simd.rows import zero_flat

from znnpy.engine.memory.regions import Region
from znnpy.engine.tasks.dependencies import Declared
from znnpy.engine.tasks.identity import Identity, Part, Pass


def declared(name, reads=(), writes=()):
    arguments = zero_flat.arguments(target=0, length=0)
    regions = [tuple(Region((key,)) for key in keys) for keys in (reads, writes)]
    what = Identity(name, Pass.FORWARD, Part.COPY)
    return Declared(zero_flat, arguments, what, 1e-6, *regions)
