"""What a run was made with, kept beside it: the same versions and CPU repeat it bit by bit."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from znnpy.plan.fingerprint import vectors

_PACKAGES = ("znnpy", "numpy", "numba", "llvmlite", "pyfftw")


def versions(seed: int) -> dict[str, Any]:
    """Versions of what computes, the CPU that numba compiles for with its vectors, and the run's seed."""
    from llvmlite import binding
    from numba import config

    found: dict[str, Any] = {name: _version(name) for name in _PACKAGES}
    found |= {"python": platform.python_version()} | vectors()
    return found | {"cpu": config.CPU_NAME or binding.get_host_cpu_name(), "seed": seed}


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Each version that differs, as `name old -> new`; of a file that anybody may have changed."""
    names = [name for name in sorted(set(old) | set(new)) if old.get(name) != new.get(name)]
    return [f"{name[:40]} {str(old.get(name))[:40]} -> {new.get(name)}" for name in names[:20]]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
