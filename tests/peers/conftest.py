"""One thread for each library: several wait for each other by spinning, which takes four times the processor time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """PyTorch's and NumPy's; znnpy's workers are its own."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
