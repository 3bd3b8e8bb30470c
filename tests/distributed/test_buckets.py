"""What is added up over ranks is packed into messages, each number into one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.distributed.buckets import ALONE, Pieces, bundled, in_turn, size_of
from znnpy.distributed.reduction_tree import Ranks
from znnpy.distributed.strategies import STRATEGIES, strategy

FOUR = Ranks.of(4, 4)
LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=6)


def pieces(owner: str, *lengths: int, number: int = 4) -> Pieces:
    ends = [sum(lengths[: count + 1]) for count in range(len(lengths))]
    return Pieces(owner, tuple(ends), number)


def told(bundles: list[tuple[Pieces, ...]]) -> list[list[tuple[str, int]]]:
    """Owner and bytes of each run of pieces, by bundle."""
    return [[(it.owner, it.size) for it in bundle] for bundle in bundles]


@given(st.lists(st.tuples(LENGTHS, st.sampled_from([4, 8])), max_size=8), st.integers(4, 300))
def test_every_piece_is_in_one_bundle(layers: list[tuple[list[int], int]], most: int) -> None:
    given_ = [pieces(str(n), *lengths, number=size) for n, (lengths, size) in enumerate(layers)]
    for alone in (None, most // 2):
        found = bundled(given_, most, alone)
        runs = [run for bundle in found for run in bundle]
        assert {it.owner: lengths([it]) for it in given_} == {
            it.owner: lengths(run for run in runs if run.owner == it.owner) for it in given_
        }
        assert all(len({run.bytes for run in bundle}) == 1 for bundle in found)
        assert all(size_of(it) <= most or sum(run.pieces for run in it) == 1 for it in found)


def lengths(runs: Iterable[Pieces]) -> list[int]:
    """Of all pieces."""
    return sorted(end - run.start(piece) for run in runs for piece, end in enumerate(run.ends))


def test_what_is_small_is_packed_as_far_as_it_goes() -> None:
    given_ = [pieces("a", 10), pieces("b", 10), pieces("c", 5), pieces("d", 1), pieces("e", 30)]
    assert told(bundled(given_, 100)) == [
        [("a", 40), ("b", 40), ("c", 20)],
        [("e", 120)],  # which waits for nothing
        [("d", 4)],
    ]


def test_what_is_large_is_cut_between_pieces() -> None:
    assert told(bundled([pieces("a", 10, 10, 10, 40)], 100)) == [
        [("a", 80)],
        [("a", 160)],
        [("a", 40)],
    ]


def test_what_is_better_alone_is_packed_with_nothing() -> None:
    """Then it lies in one place in memory, and nobody has to pack it."""
    given_ = [pieces("a", 2), pieces("b", 15), pieces("c", 3), pieces("d", 4)]
    assert told(bundled(given_, 100, alone=60)) == [[("b", 60)], [("a", 8), ("c", 12), ("d", 16)]]
    large = pieces("b", ALONE // 4)
    (_, first), (_, second) = in_turn(strategy("tree"), [[given_[0], large, given_[2]]], FOUR)
    assert told([first, second]) == [[("b", ALONE)], [("a", 8), ("c", 12)]]


def test_numbers_of_other_sizes_are_apart() -> None:
    given_ = [pieces("a", 2), pieces("b", 2, number=8), pieces("c", 2, number=8)]
    assert told(bundled(given_, 100)) == [[("a", 8)], [("b", 16), ("c", 16)]]


@pytest.mark.parametrize("name", STRATEGIES)
def test_messages_of_a_fixed_tree_are_of_one_layer_and_colors_take_turns(name: str) -> None:
    layers = [[pieces("a", 1), pieces("b", 1)], [pieces("c", 1)], [pieces("d", 1)]]
    way = STRATEGIES[name]  # type: ignore[index]
    colors, found = zip(*in_turn(way, layers, FOUR), strict=True)
    owners = [[it.owner for it in bundle] for bundle in found]
    assert owners == ([["a", "b"], ["c"], ["d"]] if way.fixed else [["a", "b", "c", "d"]])
    assert list(colors) == [
        None if way.doubled else number % way.colors for number in range(len(owners))
    ]


def test_small_layers_have_no_color_and_take_no_turn() -> None:
    way = strategy("multicolor", 2)
    sizes = [way.doubled, way.doubled + 4, 4, way.doubled + 4, way.doubled + 4, 8]
    layers = [[pieces("a", size // 4)] for size in sizes]
    assert [color for color, _ in in_turn(way, layers, FOUR)] == [None, 0, None, 1, 0, None]
    # Messages that are asked to be smaller are of smaller layers.
    colors = [color for color, _ in in_turn(strategy("multicolor", 2, 4), layers, FOUR)]
    assert colors == [0, 1, None, 0, 1, 0]
    # Where one rank would send to many at once, small layers take turns as well.
    colors = [color for color, _ in in_turn(way, layers, Ranks.of(9, 9))]
    assert colors == [0, 1, 0, 1, 0, 1]


def test_large_layers_have_larger_messages_unless_a_size_is_asked_for() -> None:
    usual, asked = strategy("multicolor", 4), strategy("multicolor", 4, 1 << 14)
    # 64 KiB each; a layer has two messages for each color before they grow.
    for most, rows in ((256, 32), (512, 64), (1024, 128), (1024, 512)):
        layer = [pieces("a", *[1 << 14] * rows)]
        assert {size_of(bundle) for _, bundle in in_turn(usual, [layer], FOUR)} == {most << 10}
        assert {size_of(bundle) for _, bundle in in_turn(asked, [layer], FOUR)} == {1 << 16}
    assert {size_of(it) for _, it in in_turn(strategy("tree"), [layer], FOUR)} == {1 << 20}
