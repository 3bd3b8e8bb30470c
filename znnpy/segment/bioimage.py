"""The package bioimage-cpp, which multicut and mutex watershed need."""

from __future__ import annotations

import platform
from importlib import import_module
from typing import Any

from znnpy.errors import VolumeError

WHEELS = "x86_64"  # the machine that bioimage-cpp has wheels for


def bioimage_cpp(module: str) -> Any:
    """Return a module of bioimage-cpp; raise VolumeError, saying how to install it, where it is not."""
    try:
        return import_module(f"bioimage_cpp.{module}")
    except ImportError as error:
        machine = platform.machine()
        built = f" (no wheel for {machine}: pip builds it, with a C++ compiler)"
        raise VolumeError(
            "mutex watershed and multicut need the package bioimage-cpp, which is not installed: "
            f'pip install "znnpy[mutex]"{"" if machine == WHEELS else built}'
        ) from error
