"""znnpy trains and runs 3-D convolutional networks on many-core CPUs: `train`, `open_run`, and below them `Model`."""

TYPE_CHECKING = False  # typing's own takes a while to load, in which Ctrl-C would be a traceback
if TYPE_CHECKING:
    from typing import Any

    from znnpy.engine import Execution, Hardware, Model, Optimizer, Training
    from znnpy.interactive import Objects, Run, open_run, score, segment, train
    from znnpy.interop.pytorch.module import from_torch
    from znnpy.network import load_network

__version__ = "0.1.0"
__all__ = [
    "Execution",
    "Hardware",
    "Model",
    "Objects",
    "Optimizer",
    "Run",
    "Training",
    "__version__",
    "from_torch",
    "load_network",
    "open_run",
    "score",
    "segment",
    "train",
]

_HOMES = {
    "Execution": "znnpy.engine",
    "Hardware": "znnpy.engine",
    "Model": "znnpy.engine",
    "Objects": "znnpy.interactive",
    "Optimizer": "znnpy.engine",
    "Run": "znnpy.interactive",
    "Training": "znnpy.engine",
    "from_torch": "znnpy.interop.pytorch.module",
    "load_network": "znnpy.network",
    "open_run": "znnpy.interactive",
    "score": "znnpy.interactive",
}
_ROOMS = ("segment", "train")  # that are functions, too


def __getattr__(name: str) -> "Any":
    """Import a public name when it is first used, so that `znnpy --help` need not load the compiler."""
    if name not in (*_HOMES, *_ROOMS):
        raise AttributeError(f"module 'znnpy' has no attribute {name!r}")
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f"znnpy.{name}")
    from znnpy.plugins import load

    found = getattr(import_module(_HOMES[name]), name)
    load()
    return found


def __dir__() -> list[str]:
    """Return the public names, also those that were not imported yet."""
    return sorted(__all__)
