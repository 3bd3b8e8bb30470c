"""A container's limit counts, and only when it is the smaller one."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from znnpy.data.memory import available_memory, readable


def test_limit_of_the_control_group(tmp_path: Path) -> None:
    machine = psutil.virtual_memory().total
    assert 0 < available_memory(tmp_path) <= machine
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(tmp_path) > 10**6
    (tmp_path / "memory.max").write_text("1000000\n")
    assert available_memory(tmp_path) == 10**6
    (tmp_path / "memory.current").write_text("400000\n")
    assert available_memory(tmp_path) == 600_000
    (tmp_path / "memory.current").write_text("1400000\n")
    assert available_memory(tmp_path) == 0


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**42, "4.0 TiB")]
)
def test_readable(size: int, text: str) -> None:
    assert readable(size) == text
