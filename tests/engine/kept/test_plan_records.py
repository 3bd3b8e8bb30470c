"""Names of buffers come back as they were, and those that no text tells are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.engine.kept.records import (
    Unrecorded,
    _name_of,
    _name_record,
    requests_of,
    requests_record,
)
from znnpy.engine.memory.arena import FIRST
from znnpy.engine.memory.regions import Filled, Name, Use
from znnpy.engine.memory.requests import Request, Requests
from znnpy.engine.tasks.task_identity import Kind, Part, Pass

LINES = Use("lines of this test")
TWICE = [Use("told twice by this test") for _ in range(2)]
WHICH = st.recursive(
    st.integers(0, FIRST) | st.text() | st.booleans() | st.sampled_from([*Pass, *Part]) | st.none(),
    lambda parts: st.lists(parts, max_size=3).map(tuple),
    max_leaves=5,
)
NAMES = st.builds(
    Name, st.just(LINES), st.text(), st.lists(WHICH, max_size=3).map(tuple), st.integers(0, 9)
)
REQUESTS = st.builds(
    Request,
    st.sampled_from(["shared", "workspace", "scratch", "own", "mailbox", "theirs"]),
    st.none() | NAMES,
    st.integers(0, 1 << 40),
    st.sampled_from(Filled),
    st.integers(0, 99),
    st.integers(0, 1 << 14),
)


@given(st.lists(st.booleans()).map(tuple), st.lists(REQUESTS).map(tuple))
def test_requests_come_back(reserved, later):
    given = Requests(reserved, later)
    found = requests_of(json.loads(json.dumps(requests_record(given))))
    assert found == given
    # Parts of names may be texts, of which some are equal to members of enums.
    assert repr(found) == repr(given)


@pytest.mark.parametrize(
    "name", [Name(TWICE[1]), Name(LINES, which=(Kind.SUM,)), Name(LINES, which=(0.5,))]
)
def test_what_has_no_record_is_refused(name):
    with pytest.raises(Unrecorded):
        requests_record(Requests((), (Request("own", name),)))


def test_uses_that_are_not_declared_yet_are_those_that_will_be():
    """Of emitters that a kept graph is made without, and others are declared with later."""
    record = ["foreseen by this test", "and told together", "owner", [], 0]
    name, again = _name_of(record), _name_of(record)
    assert name == again
    assert _name_record(name) == record
    declared = Use(*record[:2])
    assert name.use is declared
    assert Name(declared, "owner") == name
    Use(*record[:2])
    with pytest.raises(Unrecorded):
        _name_record(name)
