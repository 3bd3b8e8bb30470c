"""Imports packages that only some formats need, or says which of znnpy's extras brings them."""

from __future__ import annotations

import importlib
from typing import Any

from znnpy.errors import VolumeError


def required(module: str, package: str, extra: str, title: str) -> Any:
    """Return an imported module; VolumeError, naming format, package and extra, where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise VolumeError(
            f'{title} files need the package {package}, which is not installed: pip install "znnpy[{extra}]"'
        ) from error
