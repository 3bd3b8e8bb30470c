"""`loading`: modules are loaded without looking for garbage in what they define."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Pause the collector of cyclic garbage while the block loads modules, and keep what they define out of it.

    Modules are hundreds of thousands of objects that stay until the end: looking at all of them again and again takes
    a tenth of the time of loading, and later ones would look once more. For the process of a command alone, which
    ends soon; where the collector is off already it stays so.
    """
    before, known = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > known:  # else a command of a process that runs many
            gc.freeze()
        if before:
            gc.enable()
