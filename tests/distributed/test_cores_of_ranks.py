"""Ranks that share cores divide them."""

from __future__ import annotations

import os

import pytest

from znnpy.distributed.core_shares import Place, threads_of

WHOLE = range(8)


@pytest.fixture(autouse=True)
def _cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(WHOLE))
    monkeypatch.setattr("znnpy.scheduler.core_count.quota_cores", lambda: None)


def test_cores_are_divided_among_the_ranks_of_a_host_that_have_them_in_common() -> None:
    assert threads_of([Place("a", WHOLE)], 0) == 8
    assert threads_of([Place("a", WHOLE), Place("b", WHOLE)], 1) == 8
    assert threads_of([Place("a", WHOLE)] * 3, 1) == 2
    assert threads_of([Place("a", WHOLE)] * 9, 1) == 1
    bound = [Place("a", WHOLE), Place("a", range(8, 16))]  # by the launcher
    assert threads_of(bound, 0) == 8


def test_the_cores_that_slurm_gives_a_rank_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")
    assert threads_of([Place("a", WHOLE)] * 2, 0) == 4
