"""One thread for each library, and PyTorch's numbers the same in each test, whatever ran before.

Several threads wait for each other by spinning, which takes four times the processor time.
"""

from __future__ import annotations

import sys
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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Draw all weights and images from one seed, those of fixtures too: else they depend on the tests before."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
