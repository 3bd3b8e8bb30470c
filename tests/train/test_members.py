"""Ranks that share cores, and ranks that would compute other bits."""

import os

import pytest

from znnpy.data.memory import available
from znnpy.errors import RunError
from znnpy.train.members import member, refuse_mixed, share_host, threads_of


@pytest.fixture
def cores(monkeypatch):
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    own = set(range(8))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: own)
    monkeypatch.setattr("znnpy.scheduler.cores.quota_cores", lambda: None)


def at(host, *cores):
    return member() | {"host": host, "cores": list(cores)}


def test_cores_are_divided_among_the_ranks_of_a_host_that_have_them_in_common(cores):
    whole = tuple(range(8))
    assert threads_of([at("a", *whole)], 0) == 8
    assert threads_of([at("a", *whole), at("b", *whole)], 1) == 8
    assert threads_of([at("a", *whole)] * 3, 1) == 2
    assert threads_of([at("a", *whole)] * 9, 1) == 1
    bound = [at("a", *whole), at("a", *range(8, 16))]  # by the launcher
    assert threads_of(bound, 0) == 8


def test_the_cores_that_slurm_gives_a_rank_are_its_own(cores, monkeypatch):
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")
    assert threads_of([at("a", *range(8))] * 2, 0) == 4


def test_memory_is_divided_among_the_ranks_of_a_host(monkeypatch):
    monkeypatch.setattr("znnpy.data.memory._sharers", 1)
    members = [at("a"), at("b"), at("a"), at("a")]
    for rank, sharers in ((0, 3), (1, 1), (2, 3)):
        share_host(members, rank)
        assert available(1).endswith(
            f"{sharers} ranks of this host" if sharers > 1 else "available"
        )
    share_host([], 0)
    assert available(1).endswith("available")


def test_ranks_that_would_round_differently_are_refused():
    here, there = at("a"), at("b")
    refuse_mixed([here, there])
    there["cpu"] = there["cpu"] | {"lanes": 4, "features": ""}
    with pytest.raises(RunError, match=r"lanes .* -> 4 from rank 0 on a to rank 1 on b"):
        refuse_mixed([here, there])
    refuse_mixed([here, there], different_cpus=True)
    there["versions"] = there["versions"] | {"numpy": "1.0"}
    with pytest.raises(RunError, match=r"numpy .* -> 1\.0 .*install the same versions"):
        refuse_mixed([here, there], different_cpus=True)
