"""Ranks that would compute other bits."""

import pytest

from znnpy.data.process_memory import available, available_memory
from znnpy.errors import RunError
from znnpy.train.environment import member, refuse_mixed, share_host


def at(host):
    return member() | {"host": host}


def test_memory_is_divided_among_the_ranks_of_a_host(monkeypatch):
    monkeypatch.setattr("znnpy.data.process_memory._part", None)
    members = [at("a"), at("b"), at("a"), at("a")]
    for rank, sharers in ((0, 3), (1, 1), (2, 3)):
        share_host(members, rank)
        assert available(1).endswith(
            f"{sharers} ranks of this host" if sharers > 1 else "available"
        )
    share_host([], 0)
    assert available(1).endswith("available")


def test_ranks_of_a_host_judge_alike_by_what_was_free_before_any_read(tmp_path, monkeypatch):
    """Each of three ranks keeps what fits into its part, though the others have taken theirs."""
    monkeypatch.setattr("znnpy.data.process_memory._part", None)
    members = [at("a") | {"free": free} for free in (1000, 900, 1100)] + [at("b") | {"free": 10}]
    for rank, free in enumerate((1000, 700, 400)):
        share_host(members, rank)
        monkeypatch.setattr("znnpy.data.process_memory.free_memory", lambda *_, free=free: free)
        assert available_memory() == 300


def test_ranks_that_would_round_differently_are_refused():
    here, there = at("a"), at("b")
    refuse_mixed([here, there])
    there["cpu"] = there["cpu"] | {"features": "old"}
    with pytest.raises(RunError, match=r"features .* -> old from rank 0 on a to rank 1 on b"):
        refuse_mixed([here, there])
    refuse_mixed([here, there], different_cpus=True)
    there["versions"] = there["versions"] | {"numpy": "1.0"}
    with pytest.raises(RunError, match=r"numpy .* -> 1\.0 .*install the same versions"):
        refuse_mixed([here, there], different_cpus=True)


def test_ranks_whose_gradients_lie_in_other_orders_are_refused_in_any_case():
    here, there = at("a"), at("b")
    there["cpu"] = there["cpu"] | {"lanes": 2}
    for allowed in (False, True):
        with pytest.raises(RunError, match=r"lanes .* -> 2 from rank 0 .* other orders"):
            refuse_mixed([here, there], different_cpus=allowed)
