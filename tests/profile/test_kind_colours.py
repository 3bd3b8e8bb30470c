"""Whatever computes has a colour of its own in reports, traces' graphs and their legends."""

from collections import Counter

from znnpy.engine.tasks.task_identity import Kind
from znnpy.pictures.palette import PALETTE
from znnpy.profile.colours import KINDS, LOSSES, colour_of, name_of

STILL = {Kind.COPY, Kind.DROPOUT, Kind.GATE, Kind.BARRIER}


def test_every_kind_of_task_has_a_colour():
    assert set(KINDS) == set(Kind)
    assert {*KINDS.values(), *LOSSES.values()} <= set(PALETTE)
    used = Counter(name_of(kind) for kind in set(Kind) - STILL)
    assert "gray" not in used
    assert max(used.values()) == 1
    assert {name_of(kind) for kind in STILL} == {"gray"}


def test_kinds_are_found_by_the_names_that_summaries_have():
    assert name_of("winograd") == "cyan"
    assert colour_of("winograd") == PALETTE["cyan"][0]
