"""Counting cores: the tightest of affinity, cgroup quota and SLURM."""

import os
import threading
from pathlib import Path

import pytest

from znnpy.scheduler import available_cores
from znnpy.scheduler.core_count import keep_to, own_cores, quota_cores


def test_affinity_is_respected() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert available_cores() == 1
        assert own_cores(1) is None  # the system may find a free one
    finally:
        os.sched_setaffinity(0, allowed)
    assert 1 <= available_cores() <= len(allowed)


def test_more_processes_than_cores_have_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    assert available_cores(sharers=len(os.sched_getaffinity(0)) + 1) == 1


def test_a_core_each_only_for_as_many_workers_as_cores() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    assert own_cores(len(allowed)) == (allowed if len(allowed) > 1 else None)
    assert own_cores(len(allowed) + 1) is None
    assert own_cores(max(1, len(allowed) - 1)) is None


def test_a_thread_keeps_to_its_core() -> None:
    allowed = os.sched_getaffinity(0)
    found: list[set[int]] = []

    def thread() -> None:
        keep_to(min(allowed))
        keep_to(1 << 20)  # no such core: nothing changes
        found.append(os.sched_getaffinity(0))

    worker = threading.Thread(target=thread)
    worker.start()
    worker.join()
    assert found == [{min(allowed)}]
    assert os.sched_getaffinity(0) == allowed


def test_slurm_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    assert available_cores() == 1
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "many")
    assert available_cores() >= 1


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_version_2_quota_of_an_outer_group(tmp_path: Path) -> None:
    write(tmp_path / "self", "0::/job/step\n")
    write(tmp_path / "root/job/step/cpu.max", "max 100000\n")
    assert quota_cores(tmp_path / "root", tmp_path / "self") is None
    write(tmp_path / "root/job/cpu.max", "250000 100000\n")
    assert quota_cores(tmp_path / "root", tmp_path / "self") == 3


def test_version_1_quota(tmp_path: Path) -> None:
    write(tmp_path / "self", "5:cpu,cpuacct:/job\n3:memory:/other\n")
    write(tmp_path / "root/cpu/job/cpu.cfs_quota_us", "400000\n")
    write(tmp_path / "root/cpu/job/cpu.cfs_period_us", "100000\n")
    assert quota_cores(tmp_path / "root", tmp_path / "self") == 4
    write(tmp_path / "root/cpu/job/cpu.cfs_quota_us", "-1\n")
    assert quota_cores(tmp_path / "root", tmp_path / "self") is None
