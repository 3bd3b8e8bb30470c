"""Tasks that touch named buffers and do nothing."""

from functools import cache

from znnpy_kernels.simd.rows import zero_flat

from znnpy.engine.memory.regions import Buffer, Filled, Name, Use
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.task_identity import Identity, Part, Pass

ANY = Use("memory")


@cache
def buffer(name, filled=Filled.STEP):
    """The buffer of a name."""
    return Buffer(Name(ANY, name), filled=filled)


def declared(name, reads=(), writes=()):
    """A task that reads and writes whole buffers, or regions."""
    arguments = zero_flat.arguments(target=0, length=0)
    regions = [
        tuple(buffer(key).region() if isinstance(key, str) else key for key in keys)
        for keys in (reads, writes)
    ]
    what = Identity(name, Pass.FORWARD, Part.COPY)
    return Declared(zero_flat, arguments, what, 1e-6, *regions)
