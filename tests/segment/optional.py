"""What a machine may have to do without."""

import importlib.util
import platform

import pytest

needs_bioimage_cpp = pytest.mark.skipif(
    platform.machine() != "x86_64" and importlib.util.find_spec("bioimage_cpp") is None,
    reason="bioimage-cpp, which mutex watersheds need, has no wheel for this machine",
)
