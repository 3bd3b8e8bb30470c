"""Worker processes, which take seconds to begin, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from znnpy.infer.dask_cluster import cluster


@pytest.fixture(scope="package")
def two_processes() -> Iterator[Any]:
    """A client of a scheduler with two workers."""
    with cluster("local:2") as client:
        yield client
