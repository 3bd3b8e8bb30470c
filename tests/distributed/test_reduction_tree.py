"""What ranks own and add: the same tree for any number of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.distributed.errors import DistributedError
from znnpy.distributed.reduction_tree import FEW, Ranks, largest_microbatch
from znnpy.engine.tasks.step import tree

SIZES = [(m, p) for m in range(1, 20) for p in range(1, m + 1)]


def expression(leaves: range) -> str:
    """The sum of microbatches as the tree over them alone has it, in brackets."""
    said = {number: str(leaves[number]) for number in range(len(leaves))}
    for into, other in tree(len(leaves)):
        said[into] = f"({said[into]}+{said[other]})"
    return said[0]


@pytest.mark.quick(30)
@pytest.mark.parametrize(("microbatches", "size"), SIZES)
def test_ranks_and_colors_add_what_one_process_adds(microbatches: int, size: int) -> None:
    ranks = Ranks.of(microbatches, size)
    own = [expression(subtree.numbers) for subtree in ranks.owned]
    whole = expression(range(microbatches))
    assert ranks.add_up(own, lambda a, b: f"({a}+{b})") == whole
    for color in range(size):
        sums = dict(enumerate(own))
        for into, source in ranks.hops(color):
            left, right = sorted((into, source))
            sums[into] = f"({sums[left]}+{sums[right]})"
        assert sums[ranks.hops(color)[-1].into if size > 1 else 0] == whole


@given(st.integers(1, 40).flatmap(lambda m: st.tuples(st.just(m), st.integers(1, m))))
def test_every_rank_that_adds_adds_what_one_process_adds(sizes: tuple[int, int]) -> None:
    ranks = Ranks.of(*sizes)
    sums = [expression(subtree.numbers) for subtree in ranks.owned]
    rounds = ranks.rounds()
    if rounds is None:
        assert not sizes[1] & (sizes[1] - 1) == 0 == sizes[0] % sizes[1]
        return
    for hops in rounds:
        before = list(sums)
        assert len({hop.into for hop in hops}) == len(hops)
        assert all([hop.source for hop in hops].count(rank) <= FEW for rank in range(ranks.size))
        for into, source in hops:
            left, right = sorted((into, source))
            sums[into] = f"({before[left]}+{before[right]})"
    assert set(sums) == {expression(range(sizes[0]))}


def test_powers_of_two_double_in_as_many_rounds_as_the_tree_has_levels() -> None:
    for levels in range(5):
        ranks = Ranks.of(1 << levels, 1 << levels)
        met = [sum(hop.into == 0 for hop in hops) for hops in ranks.rounds() or ()]
        assert sum(met) == levels
    # One rank beside eight would send to all of them.
    assert Ranks.of(9, 9).rounds() is None


@pytest.mark.quick(30)
@pytest.mark.parametrize(("microbatches", "size"), SIZES)
def test_every_microbatch_has_one_owner(microbatches: int, size: int) -> None:
    owned = Ranks.of(microbatches, size).owned
    assert [number for subtree in owned for number in subtree.numbers] == list(range(microbatches))
    assert len(owned) == size


def test_powers_of_two_are_shared_evenly() -> None:
    assert [subtree.leaves for subtree in Ranks.of(32, 8).owned] == [4] * 8
    assert [subtree.leaves for subtree in Ranks.of(6, 3).owned] == [2, 2, 2]


def test_two_colors_add_at_different_ranks() -> None:
    for size in (2, 4, 8, 16):
        ranks = Ranks.of(size, size)
        first, second = ({hop.into for hop in ranks.hops(color)} for color in range(2))
        assert not first & second


def test_as_many_colors_as_ranks_send_the_least() -> None:
    """Each rank sends a segment for every color that it does not add last, log2(P) times halved."""
    ranks = Ranks.of(8, 8)
    sent = [sum(hop.source == rank for c in range(8) for hop in ranks.hops(c)) for rank in range(8)]
    assert sent == [7] * 8


def test_more_ranks_than_microbatches_are_refused() -> None:
    with pytest.raises(DistributedError, match=r"start at most 4, or make training.microbatch"):
        Ranks.of(4, 5)


def test_the_microbatch_is_as_large_as_every_rank_having_one_allows() -> None:
    assert [largest_microbatch(64, ranks) for ranks in (1, 2, 3, 4, 64)] == [64, 32, 16, 16, 1]
    assert largest_microbatch(10, 4) == 2
    with pytest.raises(DistributedError, match="start at most 2"):
        largest_microbatch(2, 3)
