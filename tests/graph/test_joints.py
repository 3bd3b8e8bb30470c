"""Tasks of which each of some precedes each of others: fewer edges, the same order."""

import numpy as np
import pytest

from znnpy.graph import joints


def pairs(before, after):
    """All edges from some tasks to others."""
    return [(one, other) for one in before for other in after]


def found_in(*sets):
    """Joints of edges, as lists, and the edges that are left."""
    edges = sorted({edge for own in sets for edge in own})
    before, after = np.array(edges).T
    found, left = joints((before, after), 100)
    kept = [edge for edge, stays in zip(edges, left, strict=True) if stays]
    return sorted((one.tolist(), other.tolist()) for one, other in found), kept


def test_each_before_each():
    assert found_in(pairs(range(4), range(10, 14))) == ([([0, 1, 2, 3], [10, 11, 12, 13])], [])


@pytest.mark.parametrize("sizes", [(1, 20), (20, 1), (2, 20), (3, 5), (3, 3)])
def test_none_where_it_saves_less_than_half(sizes):
    few = pairs(range(sizes[0]), range(30, 30 + sizes[1]))
    assert found_in(few) == ([], few)


def test_others_before_and_after():
    """Each of the tasks before is waited for by one of its own, too; and the other way around."""
    many = pairs(range(6), range(20, 26))
    own = [(task, 40 + task) for task in range(6)]
    assert found_in(many, own) == ([([*range(6)], [*range(20, 26)])], own)
    own = [(task - 10, task) for task in range(20, 26)]
    assert found_in(many, own) == ([([*range(6)], [*range(20, 26)])], own)


def test_two_apart():
    one, other = pairs(range(5), range(20, 28)), pairs(range(5, 10), range(28, 36))
    expected = [([*range(5)], [*range(20, 28)]), ([*range(5, 10)], [*range(28, 36)])]
    assert found_in(one, other) == (expected, [])


@pytest.mark.parametrize("seed", range(20))
def test_each_edge_is_left_or_in_one_joint(seed):
    rng = np.random.default_rng(seed)
    sets = [
        pairs(rng.choice(40, rng.integers(5, 9), False), 50 + rng.choice(40, 7, False))
        for _ in range(4)
    ]
    edges = {(int(one), int(other)) for own in sets for one, other in own}
    found, left = found_in(*sets)
    assert found
    made = [edge for joint in found for edge in pairs(*joint)] + left
    assert len(made) == len(edges)
    assert set(made) == edges


def test_no_edges():
    none = np.zeros(0, np.int64)
    found, left = joints((none, none), 5)
    assert found == []
    assert left.tolist() == []
