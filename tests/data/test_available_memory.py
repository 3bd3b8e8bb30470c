"""A container's limit counts, and only when it is the smaller one."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from znnpy.data import process_memory
from znnpy.data.process_memory import (
    available,
    available_memory,
    kept_no_longer,
    readable,
    share_memory,
    take,
    total_memory,
)

NOWHERE = Path("/nowhere")


def test_limit_of_the_control_group(tmp_path: Path) -> None:
    machine = psutil.virtual_memory().total
    assert 0 < available_memory(tmp_path, NOWHERE) <= machine
    assert total_memory(tmp_path, NOWHERE) == machine
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(tmp_path, NOWHERE) > 10**6
    assert total_memory(tmp_path, NOWHERE) == machine
    (tmp_path / "memory.max").write_text("1000000\n")
    assert available_memory(tmp_path, NOWHERE) == 10**6
    (tmp_path / "memory.current").write_text("400000\n")
    assert available_memory(tmp_path, NOWHERE) == 600_000
    (tmp_path / "memory.stat").write_text("anon 100000\ninactive_file 300000\nactive_file 5\n")
    assert available_memory(tmp_path, NOWHERE) == 900_000
    (tmp_path / "memory.stat").unlink()
    (tmp_path / "memory.current").write_text("1400000\n")
    assert available_memory(tmp_path, NOWHERE) == 0
    assert total_memory(tmp_path, NOWHERE) == 10**6


def test_limits_of_groups_above_and_of_version_1_count(tmp_path: Path) -> None:
    root, membership = tmp_path / "root", tmp_path / "self"
    job = root / "slurm" / "job_7"
    job.mkdir(parents=True)
    membership.write_text("4:memory,hugetlb:/job\n0::/slurm/job_7/step\n")
    (job / "memory.max").write_text("5000000\n")
    assert total_memory(root, membership) == 5_000_000
    old = root / "memory" / "job"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("3000000\n")
    (old / "memory.usage_in_bytes").write_text("2500000\n")
    assert total_memory(root, membership) == 3_000_000
    assert available_memory(root, membership) == 500_000


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**42, "4.0 TiB")]
)
def test_readable(size: int, text: str) -> None:
    assert readable(size) == text


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_that_share_a_host_have_equal_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    (tmp_path / "memory.max").write_text("1048576\n")
    assert available(1 << 20) == "1.0 MiB are available"
    monkeypatch.setattr(process_memory, "_part", None)
    share_memory(processes, 1 << 20)
    assert available_memory(tmp_path, NOWHERE) == (1 << 20) // processes
    assert total_memory(tmp_path, NOWHERE) == 1 << 20
    assert (
        available(1 << 18) == f"256.0 KiB are available to each of {processes} ranks of this host"
    )


def test_what_others_of_a_host_have_taken_changes_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text("1048576\n")
    monkeypatch.setattr(process_memory, "_part", None)
    share_memory(4, 1 << 20)
    (tmp_path / "memory.current").write_text(f"{3 << 18}\n")
    assert available_memory(tmp_path, NOWHERE) == 1 << 18
    take(1 << 17)
    assert available_memory(tmp_path, NOWHERE) == 1 << 17
    with kept_no_longer():
        take(1 << 16)
        assert available_memory(tmp_path, NOWHERE) == 1 << 16
    assert available_memory(tmp_path, NOWHERE) == 1 << 17
    (tmp_path / "memory.current").write_text(f"{(1 << 20) - 1000}\n")
    assert available_memory(tmp_path, NOWHERE) == 1000  # programs that are no ranks take some, too
    share_memory(1)
    (tmp_path / "memory.current").write_text("0\n")
    assert available_memory(tmp_path, NOWHERE) == 1 << 20
